package pgfresh;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A database that was fresh when it was leased, and that nobody else has. Tests get it by {@link FreshDatabase}; who is no
 * test, by {@link #fresh}, and then it lasts until {@link #close} or the end of the process.
 */
public final class Database implements AutoCloseable {

    private final Server server;
    private final String name;
    private final String url;
    private final String jdbcUrl;
    private final String socketUrl;
    private final String template;
    private final AtomicBoolean released = new AtomicBoolean();

    Database(Server server, Json answer) {
        this.server = server;
        name = answer.text("name");
        url = answer.text("url");
        jdbcUrl = answer.text("jdbc_url");
        socketUrl = answer.text("socket_url");
        template = answer.text("template");
    }

    /**
     * Leases a database that is a fresh copy of the default template.
     *
     * @throws PgfreshException if there is none to be had
     */
    public static Database fresh() {
        return fresh(Options.NONE);
    }

    /**
     * Leases a fresh database.
     *
     * @throws PgfreshException if there is none to be had
     */
    public static Database fresh(Options options) {
        return Server.ofThisProcess().lease(options);
    }

    /** The name in its server. */
    public String name() {
        return name;
    }

    /** {@code postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME}, for whatever is no JDBC driver. */
    public String url() {
        return url;
    }

    /** {@code jdbc:postgresql://127.0.0.1:PORT/NAME?user=…&password=…}. */
    public String jdbcUrl() {
        return jdbcUrl;
    }

    /** Straight to the server's unix socket, past the gateway and the backends that it keeps ready. */
    public String socketUrl() {
        return socketUrl;
    }

    /** The name of what it is a copy of. */
    public String template() {
        return template;
    }

    /**
     * Returns it to the state of its template, in about a millisecond.
     *
     * @throws PgfreshException if that cannot be, for instance because there are open sessions
     */
    public void reset() {
        server.reset(name, false);
    }

    /**
     * The same, after the sessions that are open were ended.
     *
     * @throws PgfreshException if that cannot be
     */
    public void resetClosingSessions() {
        server.reset(name, true);
    }

    /** Ends the lease, and with it the database. Again, it does nothing. */
    @Override
    public void close() {
        release(false, "");
    }

    /**
     * Ends the lease, that of this test, if it has a name. If it has failed, the database may be kept, and then standard error
     * says where.
     */
    void release(boolean failed, String test) {
        if (released.compareAndSet(false, true)) {
            server.release(name, failed, test)
                    .ifPresent(kept -> System.err.println("pgfresh: kept the database of the failed test: " + kept));
        }
    }

    @Override
    public String toString() {
        return "database " + name;
    }
}
