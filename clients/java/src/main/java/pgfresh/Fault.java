package pgfresh;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Error, lost connection or delay for {@link Database#fault}.
 *
 * <pre>{@code
 * database.fault(Fault.error("40001").at(Fault.Moment.COMMIT));
 * database.fault(Fault.connectionLost().at(Fault.Moment.AFTER_COMMIT));
 * database.fault(Fault.delay(Duration.ofSeconds(2)).statement("SELECT … FROM orders"));
 * }</pre>
 */
public final class Fault {

    /** Moment when a fault happens. */
    public enum Moment {
        /** At COMMIT, which fails. The server rolls the transaction back. */
        COMMIT("commit"),
        /** Instead of a statement. */
        BEFORE_STATEMENT("before statement"),
        /** After the server has received a statement, without waiting for the response. */
        DURING_STATEMENT("during statement"),
        /** After a statement has run, instead of the response that reports its completion. */
        AFTER_STATEMENT("after statement"),
        /** Instead of COMMIT. */
        BEFORE_COMMIT("before commit"),
        /** After the server has committed, instead of the response to COMMIT. */
        AFTER_COMMIT("after commit"),
        /** Instead of a new session. */
        CONNECT("connect");

        private final String text;

        Moment(String text) {
            this.text = text;
        }
    }

    private final Map<String, Object> members;

    private Fault(Map<String, Object> members) {
        this.members = members;
    }

    /** Returns a fault that is an error with an SQLSTATE, such as {@code 40001}. */
    public static Fault error(String sqlstate) {
        return new Fault(Map.of("error", sqlstate));
    }

    /**
     * Returns a failover: all sessions end, and pgfresh refuses a new connection. Default moment: {@link
     * Moment#CONNECT}.
     */
    public static Fault failover() {
        return error("failover");
    }

    /** Returns a fault that closes the connection with a TCP reset. */
    public static Fault connectionLost() {
        return new Fault(Map.of("connection", "reset"));
    }

    /** Returns a fault that leaves the connection open, but nothing arrives on it anymore. */
    public static Fault connectionSilent() {
        return new Fault(Map.of("connection", "silent"));
    }

    /** Returns a fault that delays a message. The client rounds {@code time} up to whole milliseconds. */
    public static Fault delay(Duration time) {
        return new Fault(Map.of("delay", milliseconds(time)));
    }

    /** Returns a fault that limits the bytes per second from the moment on. The rate has a unit: {@code "10kB"}. */
    public static Fault bandwidth(String rate) {
        return new Fault(Map.of("bandwidth", rate));
    }

    /** Sets the moment. Default: {@link Moment#BEFORE_STATEMENT}. */
    public Fault at(Moment moment) {
        return with("at", moment.text);
    }

    /** Makes the fault hit only statements that begin with {@code text}. {@code …} in the text stands for any text. */
    public Fault statement(String text) {
        return with("statement", text);
    }

    /** Sets the number of the first statement, commit or connection that the fault hits. Default: 1. */
    public Fault nth(long number) {
        return with("nth", number);
    }

    /** Sets the number of statements, commits or connections that the fault hits. Default: 1. */
    public Fault times(long number) {
        return with("times", number);
    }

    /** Sets how long a failover refuses new connections. Default: it refuses as many connections as {@link #times}. */
    public Fault duration(Duration time) {
        return with("duration", milliseconds(time));
    }

    /** Sets how long transactions are read-only after a failover. Default: not at all. */
    public Fault readOnly(Duration time) {
        return with("read_only", milliseconds(time));
    }

    private Fault with(String name, Object value) {
        Map<String, Object> changed = new LinkedHashMap<>(members);
        changed.put(name, value);
        return new Fault(changed);
    }

    private static String milliseconds(Duration time) {
        return time.plusNanos(999_999).toMillis() + "ms";
    }

    /** Returns the members of the request body for this fault. */
    Map<String, Object> members() {
        return members;
    }

    @Override
    public String toString() {
        return "fault " + members;
    }
}
