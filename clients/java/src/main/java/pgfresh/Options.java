package pgfresh;

/**
 * What a database shall be. What is empty is left to pgfresh.
 *
 * <pre>{@code Database.fresh(Options.NONE.template("stocked").name("orders"))}</pre>
 *
 * @param template the template to copy
 * @param name the database's name, of at most 63 bytes
 * @param isolation the kind of isolation, in the words of pgfresh's HTTP API
 * @param record whether to record the statements of its clients, for {@link Database#statements}
 */
public record Options(String template, String name, String isolation, boolean record) {

    /** Nothing but what is usual. */
    public static final Options NONE = new Options("", "", "", false);

    public Options(String template, String name, String isolation) {
        this(template, name, isolation, false);
    }

    public Options template(String template) {
        return new Options(template, name, isolation, record);
    }

    public Options name(String name) {
        return new Options(template, name, isolation, record);
    }

    public Options isolation(String isolation) {
        return new Options(template, name, isolation, record);
    }

    public Options record(boolean record) {
        return new Options(template, name, isolation, record);
    }
}
