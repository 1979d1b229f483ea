package pgfresh;

import java.util.Optional;

/** Error of pgfresh or of the client. The message has all parts, in PostgreSQL's form. */
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

    /** Returns the SQLSTATE or a code of pgfresh, unless the error is one of the client. */
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

    /** Returns the way out of the error, for programs, as in the documentation of the HTTP API. */
    public Optional<String> remedy() {
        return Optional.of(remedy).filter(text -> !text.isEmpty());
    }
}
