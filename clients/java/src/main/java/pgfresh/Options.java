package pgfresh;

/**
 * What a database shall be. What is empty is left to pgfresh.
 *
 * <pre>{@code Database.fresh(Options.NONE.template("stocked").name("orders"))}</pre>
 *
 * @param template the template to copy
 * @param name the database's name, of at most 63 bytes
 * @param isolation the kind of isolation, in the words of pgfresh's HTTP API
 */
public record Options(String template, String name, String isolation) {

    /** Nothing but what is usual. */
    public static final Options NONE = new Options("", "", "");

    public Options template(String template) {
        return new Options(template, name, isolation);
    }

    public Options name(String name) {
        return new Options(template, name, isolation);
    }

    public Options isolation(String isolation) {
        return new Options(template, name, isolation);
    }
}
