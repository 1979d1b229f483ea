package pgfresh;

import java.io.IOException;
import java.io.InputStream;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/**
 * Certificates that verify a server on another machine.
 *
 * @param parameters parameters for a database URL that make drivers verify the server, too
 */
record Trust(SSLSocketFactory sockets, String parameters) {

    /** Reads the certificates in {@code file}. If it is empty or "system", uses the certificates that Java trusts. */
    static Trust in(String file) {
        if (file.isEmpty() || file.equals("system")) {
            return new Trust((SSLSocketFactory) SSLSocketFactory.getDefault(), "sslmode=verify-full");
        }
        try {
            String encoded = URLEncoder.encode(file, StandardCharsets.UTF_8).replace("+", "%20");
            return new Trust(sockets(Path.of(file)), "sslmode=verify-full&sslrootcert=" + encoded);
        } catch (IOException | GeneralSecurityException | IllegalArgumentException error) {
            String why = error instanceof NoSuchFileException ? "there is no such file" : error.getMessage();
            throw new PgfreshException(
                    "cannot read the certificate \"" + file + "\", which PGSSLROOTCERT names: " + why, error);
        }
    }

    private static SSLSocketFactory sockets(Path file) throws IOException, GeneralSecurityException {
        KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
        roots.load(null, null);
        try (InputStream in = Files.newInputStream(file)) {
            int number = 0;
            for (Certificate root : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                roots.setCertificateEntry("root" + number++, root);
            }
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(roots);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    /** Returns {@code url} with the parameters appended. */
    String addTo(String url) {
        return url + (url.contains("?") ? "&" : "?") + parameters;
    }
}
