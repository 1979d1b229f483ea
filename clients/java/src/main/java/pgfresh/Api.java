package pgfresh;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpRetryException;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import javax.net.ssl.HttpsURLConnection;

/**
 * Client of the HTTP API. Each request opens a new connection: the server closes idle connections, and if a request
 * fails because of that, a client can't determine whether the server processed it. The class uses {@link
 * HttpURLConnection}, because {@code java.net.http} always reuses connections.
 */
final class Api {

    /** Timeout for a response. The timeouts in pgfresh itself are shorter. */
    private static final Duration RESPONSE_TIMEOUT = Duration.ofMinutes(2);

    /** Timeout for connecting to another machine. */
    private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(30);

    /** Hint if a server on another machine doesn't respond. */
    private static final String UNREACHABLE =
            "Check the host and the port in PGFRESH_CONTROL, and that \"pgfresh serve --listen\" runs there.";

    /** Hint if the certificate of a server on another machine can't be verified. */
    private static final String UNTRUSTED = "PGSSLROOTCERT must name the file of the server's root certificate. "
            + "pgfresh makes a new one at each start.";

    /** Hint if a server on this machine doesn't respond. */
    private static final String GONE =
            "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

    /** Hints that replace hints about HTTP API options, by remedy. */
    private static final Map<String, String> HINTS = Map.of(
            "begin_hold", "The server was restarted. Start the tests again.",
            "close_sessions", "Close them first, or call resetClosingSessions().",
            "record", "Lease it with @FreshDatabase(record = true), or a @Budget.",
            "send_secret", "Check the password in PGFRESH_CONTROL.");

    private final String address;
    private final String secret;

    /** Certificates that verify the server, for https. Null for http. */
    private final Trust trust;

    Api(String host, int port, String secret, Trust trust) {
        this.address = host + ":" + port;
        this.secret = secret;
        this.trust = trust;
    }

    /**
     * Sends a request and returns the response body, which may be empty.
     *
     * @throws PgfreshException if the client can't reach the server, or the server refuses the request
     */
    Json send(String method, String path, Optional<String> body) {
        return send(method, path, body, Map.of());
    }

    /**
     * Sends a request and returns the response body. {@code needs} has the members that the body must have, and their
     * types.
     *
     * @throws PgfreshException also if a member is missing
     */
    Json send(String method, String path, Optional<String> body, Map<String, Class<?>> needs) {
        return exchange(method, path, body, connection -> answer(connection).require(needs));
    }

    /** Opens a response that names a holder. The holder ends when the response is closed. */
    Hold hold() {
        return exchange("GET", "/v1/hold", Optional.empty(), connection -> {
            if (connection.getResponseCode() >= 300) {
                answer(connection);
            }
            InputStream in = connection.getInputStream();
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            for (int next = in.read(); next >= 0 && next != '\n'; next = in.read()) {
                line.write(next);
            }
            String holder = Json.read(line.toString(StandardCharsets.UTF_8)).text("holder");
            if (holder.isEmpty()) {
                throw new IllegalArgumentException("it names no holder");
            }
            return new Hold(holder, in);
        });
    }

    /** Holder, and the response that must stay open until the holder is to end. */
    record Hold(String holder, InputStream lifeline) {}

    /** If the client verifies the server, adds parameters to a database URL that make drivers verify it, too. */
    String verified(String url) {
        return trust == null || url.isEmpty() ? url : trust.addTo(url);
    }

    private interface Reader<T> {
        T read(HttpURLConnection connection) throws IOException;
    }

    private <T> T exchange(String method, String path, Optional<String> body, Reader<T> reader) {
        try {
            HttpURLConnection connection = open(path);
            // A redirect must not send the secret to another server.
            connection.setInstanceFollowRedirects(false);
            connection.setRequestMethod(method);
            connection.setRequestProperty("Authorization", "Bearer " + secret);
            connection.setRequestProperty("Connection", "close");
            connection.setReadTimeout((int) RESPONSE_TIMEOUT.toMillis());
            if (!method.equals("GET")) {
                // HttpURLConnection silently retries a request unless it knows the length in advance.
                byte[] content = body.orElse("").getBytes(StandardCharsets.UTF_8);
                connection.setDoOutput(true);
                connection.setFixedLengthStreamingMode(content.length);
                try (OutputStream out = connection.getOutputStream()) {
                    out.write(content);
                }
            }
            return reader.read(connection);
        } catch (HttpRetryException error) {
            throw error.responseCode() == HttpURLConnection.HTTP_UNAUTHORIZED
                    ? unauthorized()
                    : refusal(error.responseCode(), "");
        } catch (IllegalArgumentException unreadable) {
            throw new PgfreshException(
                    "could not read the response of pgfresh at " + address + ": " + unreadable.getMessage(), unreadable);
        } catch (IOException error) {
            String hint = trust == null ? GONE : isUntrusted(error) ? UNTRUSTED : UNREACHABLE;
            throw new PgfreshException(
                    "could not talk to pgfresh at " + address + ": " + error.getMessage(), hint, error);
        }
    }

    private HttpURLConnection open(String path) throws IOException {
        if (trust == null) {
            HttpURLConnection connection =
                    (HttpURLConnection) new URL("http://" + address + path).openConnection(Proxy.NO_PROXY);
            connection.setConnectTimeout((int) RESPONSE_TIMEOUT.toMillis());
            return connection;
        }
        HttpsURLConnection connection =
                (HttpsURLConnection) new URL("https://" + address + path).openConnection(Proxy.NO_PROXY);
        connection.setConnectTimeout((int) CONNECT_TIMEOUT.toMillis());
        connection.setSSLSocketFactory(trust.sockets());
        return connection;
    }

    private static boolean isUntrusted(Throwable error) {
        return error instanceof CertificateException || error != null && isUntrusted(error.getCause());
    }

    /**
     * Returns the error for a wrong token. HttpURLConnection doesn't return the server's response if the request has
     * a fixed length.
     */
    private static PgfreshException unauthorized() {
        return new PgfreshException("the token is missing or wrong", HINTS.get("send_secret"));
    }

    private static Json answer(HttpURLConnection connection) throws IOException {
        int status = connection.getResponseCode();
        try (InputStream in = status < 300 ? connection.getInputStream() : connection.getErrorStream()) {
            if (in == null && status == HttpURLConnection.HTTP_UNAUTHORIZED) {
                throw unauthorized();
            }
            String text = in == null ? "" : new String(in.readAllBytes(), StandardCharsets.UTF_8);
            if (status >= 300) {
                throw refusal(status, text);
            }
            return text.isEmpty() ? Json.EMPTY : Json.read(text);
        }
    }

    /** Returns the error in {@code text}. If the text has no error, the returned error contains the status. */
    private static PgfreshException refusal(int status, String text) {
        try {
            return error(Json.read(text).object("error"));
        } catch (IllegalArgumentException unreadable) {
            return new PgfreshException("pgfresh answered with status " + status, "");
        }
    }

    /** Returns the exception for an error object from pgfresh. */
    static PgfreshException error(Json error) {
        String remedy = error.text("remedy");
        String hint = HINTS.getOrDefault(remedy, error.text("hint"));
        return new PgfreshException(error.text("code"), error.text("message"), error.text("detail"), hint, remedy);
    }
}
