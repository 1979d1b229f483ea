package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Server on another machine, which PGFRESH_CONTROL=https://… names. 127.0.0.2 stands for it. */
class RemoteTest {

    private static final String HOST = "127.0.0.2";

    private static final String UNTRUSTED = "PGSSLROOTCERT must name the file of the server's root certificate. "
            + "pgfresh makes a new one at each start.";

    /** pgfresh server that other machines can use. */
    private static final class Remote implements AutoCloseable {

        final Path directory;
        final List<String> options;
        int port;
        Path root;
        Process process;

        Remote(Path directory, String... options) throws IOException {
            this.directory = directory;
            this.options = List.of(options);
            start();
        }

        /** Starts the server. A restarted server keeps its port. */
        void start() throws IOException {
            String binary = Optional.ofNullable(System.getenv("PGFRESH_BIN")).orElse("pgfresh");
            List<String> command =
                    new ArrayList<>(List.of(binary, "serve", "--json", "--listen", HOST, "--port", "" + port));
            command.addAll(options);
            ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
            builder.environment().remove("PGFRESH_CONTROL");
            builder.environment().put("PGFRESH_PASSWORD", "far:away");
            process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            Json ready = Json.read(process.inputReader().readLine());
            port = (int) ready.number("port");
            root = ready.has("root_certificate")
                    ? Path.of(ready.text("root_certificate"))
                    : directory.resolve("server.crt");
        }

        Map<String, String> environment() {
            Map<String, String> environment = new HashMap<>();
            environment.put("PGFRESH_CONTROL", "https://:far%3Aaway@" + HOST + ":" + port);
            environment.put("PGSSLROOTCERT", root.toString());
            return environment;
        }

        Server join() {
            return Server.join(environment());
        }

        PgfreshException refuse(String name, String value) {
            Map<String, String> environment = environment();
            environment.put(name, value);
            return assertThrows(PgfreshException.class, () -> Server.join(environment));
        }

        @Override
        public void close() throws IOException {
            stop();
        }

        void stop() throws IOException {
            process.getOutputStream().close();
            process.onExit().join();
        }
    }

    @Test
    void remoteDatabaseIsVerified(@TempDir Path directory) throws Exception {
        try (Remote remote = new Remote(directory);
                Database database = remote.join().lease(Options.NONE)) {
            for (String url : List.of(database.url(), database.jdbcUrl())) {
                assertTrue(url.contains(HOST + ":" + remote.port + "/" + database.name()), url);
                assertTrue(url.contains("sslmode=verify-full&sslrootcert=%2F"), url);
            }
            for (int i = 0; i < 2; i++) {
                try (Connection connection = DriverManager.getConnection(database.jdbcUrl())) {
                    connection.createStatement().execute("CREATE TABLE made ()");
                }
                database.reset();
            }
        }
    }

    @Test
    void leasesEndWithRemoteProcess(@TempDir Path directory) throws Exception {
        try (Remote remote = new Remote(directory)) {
            ProcessBuilder builder = new ProcessBuilder(
                            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                            "-cp",
                            System.getProperty("java.class.path"),
                            Leaser.class.getName())
                    .redirectError(ProcessBuilder.Redirect.INHERIT);
            builder.environment().remove("PGFRESH_HOLDER");
            builder.environment().putAll(remote.environment());
            Process process = builder.start();
            String name = process.inputReader().readLine();
            Server server = remote.join();
            server.reset(name, false, Map.of());
            process.destroyForcibly().waitFor();
            Instant deadline = Instant.now().plus(Duration.ofSeconds(60));
            PgfreshException error = assertThrows(PgfreshException.class, () -> {
                while (Instant.now().isBefore(deadline)) {
                    server.reset(name, false, Map.of());
                    Thread.sleep(50);
                }
            });
            assertTrue(error.getMessage().contains("is not leased"), error.getMessage());
        }
    }

    /** Leases a database, prints its name, and waits for a signal. */
    static final class Leaser {
        public static void main(String[] arguments) throws InterruptedException {
            System.out.println(Database.fresh().name());
            System.gc();
            Thread.sleep(Duration.ofHours(1).toMillis());
        }
    }

    @Test
    void wrongCertificatesAreRefused(@TempDir Path directory) throws Exception {
        try (Remote remote = new Remote(directory)) {
            Path former = Files.copy(remote.root, directory.resolve("former.crt"));
            remote.stop();
            remote.start();
            PgfreshException error = remote.refuse("PGSSLROOTCERT", former.toString());
            assertTrue(error.primary().startsWith("could not talk to pgfresh at " + HOST), error.getMessage());
            assertEquals(UNTRUSTED, error.hint().orElseThrow());
            assertEquals(
                    "cannot read the certificate \"/nowhere/root.crt\", which PGSSLROOTCERT names: there is no such file",
                    remote.refuse("PGSSLROOTCERT", "/nowhere/root.crt").getMessage());
        }
    }

    @Test
    void wrongPasswordsAreRefused(@TempDir Path directory) throws Exception {
        try (Remote remote = new Remote(directory)) {
            String wrong = "https://:near@" + HOST + ":" + remote.port;
            String text = "the token is missing or wrong\nHINT:  Check the password in PGFRESH_CONTROL.";
            assertEquals(text, remote.refuse("PGFRESH_CONTROL", wrong).getMessage());
            Map<String, String> environment = remote.environment();
            environment.putAll(Map.of("PGFRESH_CONTROL", wrong, "PGFRESH_HOLDER", "h"));
            Server server = Server.join(environment);
            assertEquals(
                    text,
                    assertThrows(PgfreshException.class, () -> server.lease(Options.NONE)).getMessage());
        }
    }

    @Test
    void unreachableServersAreNamed() throws Exception {
        int port;
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
            port = listener.getLocalPort();
        }
        Map<String, String> environment = Map.of("PGFRESH_CONTROL", "https://:secret@" + HOST + ":" + port);
        PgfreshException error = assertThrows(PgfreshException.class, () -> Server.join(environment));
        assertTrue(
                error.primary().startsWith("could not talk to pgfresh at " + HOST + ":" + port + ": "),
                error.getMessage());
        assertEquals(
                "Check the host and the port in PGFRESH_CONTROL, and that \"pgfresh serve --listen\" runs there.",
                error.hint().orElseThrow());
    }

    @Test
    void restartedServerEndsHolder(@TempDir Path directory) throws Exception {
        String openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pgfresh"
                + " -addext subjectAltName=IP:" + HOST
                + " -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.crt";
        Process made = new ProcessBuilder(openssl.split(" "))
                .directory(directory.toFile())
                .redirectErrorStream(true)
                .start();
        made.getInputStream().readAllBytes();
        assertEquals(0, made.waitFor());
        try (Remote remote = new Remote(directory, "--tls-cert", "server.crt", "--tls-key", "server.key")) {
            Server server = remote.join();
            server.lease(Options.NONE);
            remote.stop();
            remote.start();
            PgfreshException error = assertThrows(PgfreshException.class, () -> server.lease(Options.NONE));
            assertEquals("The server was restarted. Start the tests again.", error.hint().orElseThrow());
        }
    }
}
