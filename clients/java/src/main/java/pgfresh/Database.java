package pgfresh;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

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
    private final boolean recorded;
    private final AtomicBoolean released = new AtomicBoolean();
    private final AtomicInteger resets = new AtomicInteger();

    /** What the test exceeded before it reset or closed the database. */
    private final List<String> exceeded = new CopyOnWriteArrayList<>();

    /** The test that has used it since it was leased or reset; null if it belongs to no test. */
    private volatile Use use;

    /** The test that uses it after the next reset; null if it belongs to no test. */
    private volatile Use next;

    /** A test that uses a database, and its budget while it runs. */
    static final class Use {
        /** No test yet, since a class leased it. */
        static final Use CLASS = new Use("", Map.of());

        /** No test yet, since it was reset. */
        static final Use NONE = new Use("", Map.of());

        final String test;
        final Map<String, Object> limits;

        Use(String test, Map<String, Object> limits) {
            this.test = test;
            this.limits = limits;
        }
    }

    Database(Server server, Json answer) {
        this.server = server;
        name = answer.text("name");
        url = answer.text("url");
        jdbcUrl = answer.text("jdbc_url");
        socketUrl = answer.text("socket_url");
        template = answer.text("template");
        recorded = answer.flag("recorded");
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

    /** The same over a unix socket, without a password. */
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
        reset(false);
    }

    /**
     * The same, after the sessions that are open were ended.
     *
     * @throws PgfreshException if that cannot be
     */
    public void resetClosingSessions() {
        reset(true);
    }

    /**
     * Runs the block and returns the statements that clients of the database ran meanwhile. They must be recorded, by {@code
     * record = true} of {@link FreshDatabase} or {@link Options}, by a {@link Budget}, or by {@code [budget]} in {@code
     * pgfresh.toml}.
     *
     * <pre>{@code
     * Statements ran = database.statements(() -> listOrders(connection));
     * assertTrue(ran.count() <= 3, ran::toString);
     * }</pre>
     *
     * @throws PgfreshException if the statements are not recorded
     */
    public <E extends Exception> Statements statements(Statements.Block<E> block) throws E {
        int before = resets();
        Json start = server.statements(name, Map.of());
        block.run();
        return Statements.between(start, server.statements(name, Map.of()), resets() != before);
    }

    /** Ends the lease, and with it the database. Again, it does nothing. */
    @Override
    public void close() {
        release(false, ended());
    }

    private void reset(boolean closeSessions) {
        told(server.reset(name, closeSessions, ended()));
        resets.incrementAndGet();
        if (use != next) {
            exceeded.clear();
            use = next;
        }
    }

    /** What is said of a test that is over. pgfresh tells of its budget only if something is said. */
    private Map<String, Object> ended() {
        if (use == null) {
            return Map.of();
        }
        Map<String, Object> said = new LinkedHashMap<>(use.limits);
        said.put("test", cut(use.test));
        return said;
    }

    private static String cut(String test) {
        return test.substring(0, Math.min(test.length(), 1000));
    }

    private void told(Json answer) {
        String message = answer.text("message");
        if (!message.isEmpty()) {
            exceeded.add(message);
        }
    }

    private int resets() {
        return resets.get();
    }

    /** It was leased for this test, or for a class. */
    void leasedFor(Use use) {
        this.use = use;
        next = use;
    }

    /** A test begins that uses it if it was reset before, or from the next reset on. */
    void offer(Use test) {
        next = test;
        if (use == Use.NONE) {
            use = test;
        }
    }

    /** Whether all that has run since the lease or the reset is of that test. */
    boolean isUsedBy(Use test) {
        return use == test;
    }

    /** The name of the test that uses it, or "". */
    String user() {
        return use == null ? "" : use.test;
    }

    /** The test is over, and its budget has been looked at. */
    void end(Use test) {
        if (use == test) {
            use = new Use(test.test, Map.of());
        }
        next = Use.NONE;
    }

    /** What to print of the test: in which parts, between its resets, it exceeded its budget. */
    List<String> exceeded() {
        if (!released.get() && (recorded || !use.limits.isEmpty())) {
            told(server.statements(name, use.limits));
        }
        return List.copyOf(exceeded);
    }

    /**
     * Ends the lease, that of this test, if it has a name. If it has failed, the database may be kept, and then standard error
     * says where.
     */
    void release(boolean failed, String test) {
        release(failed, test.isEmpty() ? Map.of() : Map.of("test", cut(test)));
    }

    private void release(boolean failed, Map<String, Object> test) {
        if (released.compareAndSet(false, true)) {
            Json answer = server.release(name, failed, test);
            told(answer);
            String kept = answer.text("url");
            if (!kept.isEmpty()) {
                System.err.println("pgfresh: kept the database of the failed test: " + kept);
            }
        }
    }

    @Override
    public String toString() {
        return "database " + name;
    }
}
