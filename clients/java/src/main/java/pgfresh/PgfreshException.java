package pgfresh;

import java.util.Optional;

/** Error from pgfresh or from this client. The message contains all parts, in PostgreSQL's format. */
public final class PgfreshException extends RuntimeException {

    private static final long serialVersionUID = 1;

    private final String code;
    private final String primary;
    private final String detail;
    private final String hint;
    private final String remedy;

    PgfreshException(String primary, String hint) {
        this("", primary, "", hint, "", null);
    }

    PgfreshException(String primary, Throwable cause) {
        this("", primary, "", "", "", cause);
    }

    PgfreshException(String primary, String hint, Throwable cause) {
        this("", primary, "", hint, "", cause);
    }

    PgfreshException(String code, String primary, String detail, String hint, String remedy) {
        this(code, primary, detail, hint, remedy, null);
    }

    private PgfreshException(
            String code, String primary, String detail, String hint, String remedy, Throwable cause) {
        super(primary + part("DETAIL", detail) + part("HINT", hint), cause);
        this.code = code;
        this.primary = primary;
        this.detail = detail;
        this.hint = hint;
        this.remedy = remedy;
    }

    private static String part(String label, String text) {
        return text.isEmpty() ? "" : "\n" + label + ":  " + text;
    }

    /** Returns the SQLSTATE or pgfresh error code. Empty if the error is from this client. */
    public Optional<String> code() {
        return Optional.of(code).filter(text -> !text.isEmpty());
    }

    /** Returns the first line of the message. */
    public String primary() {
        return primary;
    }

    public Optional<String> detail() {
        return Optional.of(detail).filter(text -> !text.isEmpty());
    }

    public Optional<String> hint() {
        return Optional.of(hint).filter(text -> !text.isEmpty());
    }

    /**
     * Returns the machine-readable name of the action that resolves the error. The HTTP API documentation lists the
     * names.
     */
    public Optional<String> remedy() {
        return Optional.of(remedy).filter(text -> !text.isEmpty());
    }
}
