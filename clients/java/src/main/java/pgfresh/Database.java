package pgfresh;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Leased copy of a template. Tests lease a database with {@link FreshDatabase}. Other code calls {@link #fresh}. This
 * lease ends with {@link #close} or with the process.
 */
public final class Database implements AutoCloseable {

    private final Server server;
    private final String name;
    private final String url;
    private final String jdbcUrl;
    private final String socketUrl;
    private final String replicaUrl;
    private final String template;
    private final boolean recorded;
    private final AtomicBoolean released = new AtomicBoolean();
    private final AtomicInteger resets = new AtomicInteger();

    /** Whether {@link #fault} was called since the lease or the last reset. */
    private final AtomicBoolean faulty = new AtomicBoolean();

    /** Messages about limits that the test exceeded before it reset or closed the database. */
    private final List<String> exceeded = new CopyOnWriteArrayList<>();

    /** Test that has used the database since the lease or the last reset. Null if no test owns the lease. */
    private volatile Use use;

    /** Test that uses the database after the next reset. Null if no test owns the lease. */
    private volatile Use next;

    /** Test that uses a database, with the limits that apply while the test runs. */
    static final class Use {
        /** No test has used the database yet, after a lease for a class. */
        static final Use CLASS = new Use("", Map.of());

        /** No test has used the database yet, after a reset. */
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
        url = server.verified(answer.text("url"));
        jdbcUrl = server.verified(answer.text("jdbc_url"));
        socketUrl = answer.text("socket_url");
        replicaUrl = server.verified(answer.text("replica_url"));
        template = answer.text("template");
        recorded = answer.flag("recorded");
    }

    /**
     * Leases a fresh copy of the template in {@code pgfresh.toml}.
     *
     * @throws PgfreshException if pgfresh doesn't start or refuses the request
     */
    public static Database fresh() {
        return fresh(Options.NONE);
    }

    /**
     * Leases a fresh database with options.
     *
     * @throws PgfreshException if pgfresh doesn't start or refuses the request
     */
    public static Database fresh(Options options) {
        return Server.ofThisProcess().lease(options);
    }

    /** Returns the name of the database, unique on its server. */
    public String name() {
        return name;
    }

    /**
     * Returns the PostgreSQL URL, {@code postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME}, for drivers other than
     * JDBC.
     */
    public String url() {
        return url;
    }

    /** Returns the JDBC URL, {@code jdbc:postgresql://127.0.0.1:PORT/NAME?user=…&password=…}. */
    public String jdbcUrl() {
        return jdbcUrl;
    }

    /** Returns the PostgreSQL URL with the server's unix socket, without a password. */
    public String socketUrl() {
        return socketUrl;
    }

    /** Returns the PostgreSQL URL of the replica, or an empty text if the template has no replica. */
    public String replicaUrl() {
        return replicaUrl;
    }

    /**
     * Makes the replica lag behind, for isolation {@code server}, and returns once the replica lags.
     *
     * <p>With {@code none}, a commit returns once the replica shows it. With {@code paused}, the replica doesn't show
     * further commits. With a time, such as {@code 500ms}, the replica shows each commit after this time.
     *
     * @throws PgfreshException if the database has no replica
     */
    public void setReplicaLag(String lag) {
        server.setReplicaLag(name, lag);
    }

    /**
     * Stops the server of the database and promotes the replica, which takes the place of this server.
     *
     * @throws PgfreshException if the database has no replica
     */
    public void promoteReplica() {
        server.promoteReplica(name);
    }

    /** Returns the name of the template that the database is a copy of. */
    public String template() {
        return template;
    }

    /**
     * Restores the state of the template, in about a millisecond.
     *
     * @throws PgfreshException if the server refuses the reset, for example because sessions are open. Also if a
     *     fault requested before the reset never fired; the reset happens nevertheless
     */
    public void reset() {
        reset(false);
    }

    /**
     * Closes all open sessions and restores the state of the template.
     *
     * @throws PgfreshException if the server refuses the reset, or if a fault requested before the reset never fired
     */
    public void resetClosingSessions() {
        reset(true);
    }

    /**
     * Runs a block and returns the statements that all clients ran meanwhile.
     *
     * <p>pgfresh must record the statements. To enable this, set {@code record} in {@link FreshDatabase} or {@link
     * Options}, or limit the test with a {@link Budget} or with {@code [budget]} in {@code pgfresh.toml}.
     *
     * <pre>{@code
     * Statements ran = database.statements(() -> listOrders(connection));
     * assertTrue(ran.count() <= 3, ran::toString);
     * }</pre>
     *
     * @throws PgfreshException if pgfresh doesn't record the statements
     */
    public <E extends Exception> Statements statements(Statements.Block<E> block) throws E {
        int before = resets();
        Json start = server.statements(name, Map.of());
        block.run();
        return Statements.between(start, server.statements(name, Map.of()), resets() != before);
    }

    /**
     * Requests a fault, which lasts until the next reset or the release. When the method returns, the fault applies
     * to all open sessions. A test whose fault never fires fails.
     *
     * @throws PgfreshException if pgfresh refuses the fault, for example because of an invalid SQLSTATE
     */
    public void fault(Fault fault) {
        server.fault(name, fault);
        faulty.set(true);
    }

    /** Returns the faults requested since the lease or the last reset, in this order. */
    public List<FaultStatus> faults() {
        return server.faults(name).objects("faults").stream().map(FaultStatus::of).toList();
    }

    /**
     * Releases the database. A second call does nothing.
     *
     * @throws PgfreshException if a fault never fired; the release happens nevertheless
     */
    @Override
    public void close() {
        throwIfAny(release(false, ended()));
    }

    private void reset(boolean closeSessions) {
        Json answer = server.reset(name, closeSessions, ended());
        addMessage(answer);
        resets.incrementAndGet();
        faulty.set(false);
        if (use != next) {
            exceeded.clear();
            use = next;
        }
        throwIfAny(FaultStatus.unfired(answer));
    }

    private static void throwIfAny(String unfired) {
        if (!unfired.isEmpty()) {
            throw new PgfreshException(unfired, "");
        }
    }

    /** Describes the test that has ended, for a request. Without a description, pgfresh doesn't check the budget. */
    private Map<String, Object> ended() {
        if (use == null) {
            return Map.of();
        }
        Map<String, Object> description = new LinkedHashMap<>(use.limits);
        description.put("test", cut(use.test));
        return description;
    }

    private static String cut(String test) {
        return test.substring(0, Math.min(test.length(), 1000));
    }

    private void addMessage(Json answer) {
        String message = answer.text("message");
        if (!message.isEmpty()) {
            exceeded.add(message);
        }
    }

    private int resets() {
        return resets.get();
    }

    /** Sets the test or class that owns the lease. */
    void leasedFor(Use use) {
        this.use = use;
        next = use;
    }

    /**
     * Marks the start of a test. If the database has just been reset, the test uses it immediately, otherwise from
     * the next reset on.
     */
    void offer(Use test) {
        next = test;
        if (use == Use.NONE) {
            use = test;
        }
    }

    /** Returns whether all statements since the lease or the last reset belong to the test. */
    boolean isUsedBy(Use test) {
        return use == test;
    }

    /** Returns the name of the test that uses the database, or "". */
    String user() {
        return use == null ? "" : use.test;
    }

    /** Marks the end of a test, after the check of its budget. */
    void end(Use test) {
        if (use == test) {
            use = new Use(test.test, Map.of());
        }
        next = Use.NONE;
    }

    /** Returns one message for each part of the test, between its resets, that exceeded the budget. */
    List<String> exceeded() {
        if (!released.get() && (recorded || !use.limits.isEmpty())) {
            addMessage(server.statements(name, use.limits));
        }
        return List.copyOf(exceeded);
    }

    /** Returns a line for each fault that hasn't fired, or "". A second call returns "". */
    String unfired() {
        return !released.get() && faulty.getAndSet(false) ? FaultStatus.unfired(server.faults(name)) : "";
    }

    /**
     * Releases the database, and sends the name of the test unless {@code test} is empty. If the test failed and
     * pgfresh keeps the database, prints the URL to standard error. Returns a line for each fault that never fired,
     * or "" after a failure.
     */
    String release(boolean failed, String test) {
        return release(failed, test.isEmpty() ? Map.of() : Map.of("test", cut(test)));
    }

    private String release(boolean failed, Map<String, Object> test) {
        if (!released.compareAndSet(false, true)) {
            return "";
        }
        Json answer = server.release(name, failed, test);
        addMessage(answer);
        String kept = server.verified(answer.text("url"));
        if (!kept.isEmpty()) {
            System.err.println("pgfresh: kept the database of the failed test: " + kept);
        }
        return failed ? "" : FaultStatus.unfired(answer);
    }

    @Override
    public String toString() {
        return "database " + name;
    }
}
