package pgfresh;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpRetryException;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/**
 * Client of the HTTP API. Each request opens a connection. The server closes idle ones, and a client cannot tell whether the
 * server has processed a request that fails for this reason. The class uses {@link HttpURLConnection}, because {@code
 * java.net.http} always keeps connections.
 */
final class Api {

    /** Timeout for a response. The timeouts of pgfresh itself are shorter. */
    private static final Duration RESPONSE_TIMEOUT = Duration.ofMinutes(2);

    /** Hint if there is no response. */
    private static final String GONE =
            "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

    /** Hints in place of those that name options of the HTTP API, by remedy. */
    private static final Map<String, String> HINTS = Map.of(
            "close_sessions", "Close them first, or call resetClosingSessions().",
            "record", "Lease it with @FreshDatabase(record = true), or a @Budget.");

    private final String address;
    private final String secret;

    Api(String host, int port, String secret) {
        this.address = host + ":" + port;
        this.secret = secret;
    }

    /**
     * Sends a request and returns the body of the response, which may be empty.
     *
     * @throws PgfreshException if the client cannot reach the server, or the server refuses the request
     */
    Json send(String method, String path, Optional<String> body) {
        try {
            HttpURLConnection connection =
                    (HttpURLConnection) new URL("http://" + address + path).openConnection(Proxy.NO_PROXY);
            connection.setRequestMethod(method);
            connection.setRequestProperty("Authorization", "Bearer " + secret);
            connection.setRequestProperty("Connection", "close");
            connection.setConnectTimeout((int) RESPONSE_TIMEOUT.toMillis());
            connection.setReadTimeout((int) RESPONSE_TIMEOUT.toMillis());
            if (!method.equals("GET")) {
                // HttpURLConnection repeats a request silently unless it knows the length in advance.
                byte[] content = body.orElse("").getBytes(StandardCharsets.UTF_8);
                connection.setDoOutput(true);
                connection.setFixedLengthStreamingMode(content.length);
                try (OutputStream out = connection.getOutputStream()) {
                    out.write(content);
                }
            }
            return answer(connection);
        } catch (HttpRetryException unauthorized) {
            throw refusal(unauthorized.responseCode(), "");
        } catch (IOException | IllegalArgumentException error) {
            throw new PgfreshException(
                    "could not talk to pgfresh at " + address + ": " + error.getMessage(), GONE, error);
        }
    }

    private static Json answer(HttpURLConnection connection) throws IOException {
        int status = connection.getResponseCode();
        try (InputStream in = status < 300 ? connection.getInputStream() : connection.getErrorStream()) {
            String text = in == null ? "" : new String(in.readAllBytes(), StandardCharsets.UTF_8);
            if (status >= 300) {
                throw refusal(status, text);
            }
            return text.isEmpty() ? Json.EMPTY : Json.read(text);
        }
    }

    /** Returns the error in the text, or one with the status if the text has none. */
    private static PgfreshException refusal(int status, String text) {
        try {
            return error(Json.read(text).object("error"));
        } catch (IllegalArgumentException unreadable) {
            return new PgfreshException("pgfresh answered with status " + status, "");
        }
    }

    /** Returns the exception for an error object of pgfresh. */
    static PgfreshException error(Json error) {
        String remedy = error.text("remedy");
        String hint = HINTS.getOrDefault(remedy, error.text("hint"));
        return new PgfreshException(error.text("code"), error.text("message"), error.text("detail"), hint, remedy);
    }
}
