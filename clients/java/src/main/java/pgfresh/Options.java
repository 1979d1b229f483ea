package pgfresh;

/**
 * Options of a lease. An empty option means the default.
 *
 * <pre>{@code Database.fresh(Options.NONE.template("stocked").name("orders"))}</pre>
 *
 * @param template template of the database. Default: the one in {@code pgfresh.toml}
 * @param name name of the database, at most 63 bytes. Default: pgfresh generates a name
 * @param isolation isolation of the database. The HTTP API documentation lists the values
 * @param record whether pgfresh records the statements, for {@link Database#statements}
 */
public record Options(String template, String name, String isolation, boolean record) {

    /** Options that are all defaults. */
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
