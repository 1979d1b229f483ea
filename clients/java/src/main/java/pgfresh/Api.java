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
import java.util.Optional;

/**
 * Speaks with pgfresh over HTTP. Each request has a connection of its own: the server closes those that are idle, and a
 * request that meets that cannot know whether it was heard. This is why it is not java.net.http, which keeps them all.
 */
final class Api {

    /** How long an answer may take. What pgfresh itself waits for has shorter bounds. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    /** What to do where there is no answer. */
    private static final String GONE =
            "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

    private final String address;
    private final String secret;

    Api(String host, int port, String secret) {
        this.address = host + ":" + port;
        this.secret = secret;
    }

    /**
     * Sends a request and returns the answer, which may be empty.
     *
     * @throws PgfreshException if the server cannot be reached, or refuses
     */
    Json send(String method, String path, Optional<String> body) {
        try {
            HttpURLConnection connection =
                    (HttpURLConnection) new URL("http://" + address + path).openConnection(Proxy.NO_PROXY);
            connection.setRequestMethod(method);
            connection.setRequestProperty("Authorization", "Bearer " + secret);
            connection.setRequestProperty("Connection", "close");
            connection.setConnectTimeout((int) PATIENCE.toMillis());
            connection.setReadTimeout((int) PATIENCE.toMillis());
            if (!method.equals("GET")) {
                // With its length known in advance, a request is never repeated on the quiet.
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

    /** The error in pgfresh's own words, if that is what the text has. */
    private static PgfreshException refusal(int status, String text) {
        try {
            return told(Json.read(text).object("error"));
        } catch (IllegalArgumentException unreadable) {
            return new PgfreshException("pgfresh answered with status " + status, "");
        }
    }

    /** The error that pgfresh writes so. */
    static PgfreshException told(Json error) {
        return new PgfreshException(
                error.text("code"), error.text("message"), error.text("detail"), inJava(error.text("hint")));
    }

    /** A hint in the words of this package, where it has those of HTTP. */
    static String inJava(String hint) {
        return hint.replace("set \"close_sessions\"", "call resetClosingSessions()")
                .replace(
                        "Lease it with \"record\": true", "Lease it with @FreshDatabase(record = true), or a @Budget");
    }
}
