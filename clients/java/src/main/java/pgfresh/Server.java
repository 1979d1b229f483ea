package pgfresh;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Server that leases databases: the one that "pgfresh run" has started, or the background server, which the binary
 * joins or starts.
 */
final class Server {

    /** Arguments of the binary. */
    private static final List<String> SERVE = List.of("serve", "--shared", "--json");

    /** Form of PGFRESH_CONTROL. {@link URI} rejects underscores in a host, but container names may contain them. */
    private static final Pattern CONTROL =
            Pattern.compile("(?<scheme>https?)://:(?<secret>[^@/]+)@(?<host>\\[[^]@/]+]|[^:@/\\[]+):(?<port>\\d{1,5})/?");

    /**
     * Form of a secret. An exception about a header with other characters would contain the secret, so reject them
     * first.
     */
    private static final Pattern SECRET = Pattern.compile("[!-~]+");

    /** Hint if the binary is missing or can't run. */
    private static final String SET = "Set PGFRESH_BIN to where pgfresh is, or unset it.";

    /** Returns the server of this process, or throws the error of the first search. Null before the first call. */
    private static Supplier<Server> joined;

    /** Members that the responses to a lease and to a measurement must have. */
    private static final Map<String, Class<?>> LEASED = Map.of(
            "name", String.class,
            "url", String.class,
            "jdbc_url", String.class,
            "socket_url", String.class,
            "template", String.class);

    private static final Map<String, Class<?>> MEASURED = Map.of(
            "count", Double.class, "seconds", Double.class, "complete", Boolean.class, "statements", List.class);

    private final Api api;

    /** Process whose databases pgfresh releases when the process ends. Empty within "pgfresh run". */
    private final String holder;

    /**
     * Process of the binary, which ends when its standard input closes. The kernel closes that input when this
     * process ends. The field keeps the input reachable, because the garbage collector would close it. Null if a
     * parent process started the server.
     */
    final Process process;

    /**
     * Response from a server on another machine, otherwise null. The holder ends when this response is closed, so the
     * field keeps it reachable.
     */
    private final InputStream lifeline;

    private Server(Api api, String holder, Process process, InputStream lifeline) {
        this.api = api;
        this.holder = holder;
        this.process = process;
        this.lifeline = lifeline;
    }

    /** Returns the server of this process. All calls return the same server, or throw the same error. */
    static synchronized Server ofThisProcess() {
        if (joined == null) {
            try {
                Server server = join(System.getenv());
                joined = () -> server;
            } catch (PgfreshException failure) {
                joined = () -> {
                    throw failure;
                };
            }
        }
        return joined.get();
    }

    /** Returns the server that {@code environment} names, or starts the binary. */
    static Server join(Map<String, String> environment) {
        String control = environment.getOrDefault("PGFRESH_CONTROL", "");
        if (control.isEmpty()) {
            return start(binary(environment), environment);
        }
        Matcher address = CONTROL.matcher(control);
        String secret = address.matches() ? decode(address.group("secret")) : "";
        if (!SECRET.matcher(secret).matches()) {
            // The error doesn't quote the text, because it may contain the secret.
            throw new PgfreshException("cannot read PGFRESH_CONTROL: it is not http[s]://:SECRET@HOST:PORT", "");
        }
        boolean isRemote = address.group("scheme").equals("https");
        Trust trust = isRemote ? Trust.in(environment.getOrDefault("PGSSLROOTCERT", "")) : null;
        Api api = new Api(address.group("host"), Integer.parseInt(address.group("port")), secret, trust);
        return existing(api, environment.getOrDefault("PGFRESH_HOLDER", ""), isRemote);
    }

    /** Percent-decodes a text. Returns "" if a percent sign isn't followed by a valid code. */
    private static String decode(String text) {
        try {
            // URLDecoder decodes forms, where a plus stands for a space.
            return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException malformed) {
            return "";
        }
    }

    /**
     * Returns a server that a parent process has started or that runs on another machine. If {@code holder} is
     * missing, a server on another machine gets a holder for this process.
     */
    private static Server existing(Api api, String holder, boolean isRemote) {
        if (!isRemote || !holder.isEmpty()) {
            return new Server(api, holder, null, null);
        }
        Api.Hold hold = api.hold();
        return new Server(api, hold.holder(), null, hold.lifeline());
    }

    private static String binary(Map<String, String> environment) {
        String set = environment.getOrDefault("PGFRESH_BIN", "");
        String wanted = set.isEmpty() ? "pgfresh" : set;
        Stream<String> paths = wanted.contains("/")
                ? Stream.of(wanted)
                : Stream.of(environment.getOrDefault("PATH", "").split(File.pathSeparator))
                        .map(folder -> folder + "/" + wanted);
        return paths.flatMap(Server::parsePath).filter(path -> Files.isExecutable(path) && !Files.isDirectory(path))
                .findFirst()
                .orElseThrow(() -> notFound(wanted, !set.isEmpty()))
                .toString();
    }

    /** Parses a path. Empty if Java can't represent the path: in the locale C, Java rejects paths that aren't ASCII. */
    private static Stream<Path> parsePath(String text) {
        try {
            return Stream.of(Path.of(text));
        } catch (InvalidPathException invalid) {
            return Stream.empty();
        }
    }

    private static PgfreshException notFound(String wanted, boolean isSet) {
        if (isSet && parsePath(wanted).anyMatch(Files::exists)) {
            return new PgfreshException("cannot run \"" + wanted + "\": it is not an executable file", SET);
        }
        return isSet
                ? new PgfreshException("cannot find \"" + wanted + "\", which PGFRESH_BIN names", SET)
                : new PgfreshException(
                        "cannot find \"" + wanted + "\"", installHint(System.getProperty("os.name")));
    }

    /**
     * Returns the hint for a missing binary. {@code system} is a value of the property "os.name". On macOS, the hint
     * isn't {@code make install}, because its scripts need a newer bash than macOS has.
     */
    static String installHint(String system) {
        String command =
                switch (system) {
                    case "Linux" -> "make install";
                    case "Mac OS X" -> "cargo install --locked --path crates/pgfresh";
                    default -> "";
                };
        return !command.isEmpty()
                ? "Run \"" + command + "\" in a checkout of pgfresh, or set PGFRESH_BIN to where it is."
                : "pgfresh runs on Linux and macOS, not on " + system
                        + ". Run the tests in WSL 2, or set PGFRESH_CONTROL to a server on another machine.";
    }

    /**
     * Runs the binary and waits for the line with the address of the server. The binary may build a template first,
     * which takes as long as the migrations. The binary reports progress and errors on standard error.
     */
    private static Server start(String binary, Map<String, String> environment) {
        List<String> command = new ArrayList<>(SERVE);
        command.add(0, binary);
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        // A child inherits the variables, so copy them only if they differ: a copy as strings would lose characters
        // that the locale can't represent.
        if (!environment.equals(System.getenv())) {
            builder.environment().clear();
            builder.environment().putAll(environment);
        }
        Process process;
        try {
            process = builder.start();
        } catch (IOException error) {
            Throwable why = error.getCause() == null ? error : error.getCause();
            throw new PgfreshException("cannot run \"" + binary + "\": " + why.getMessage(), SET, error);
        }
        try {
            return readLine(process);
        } catch (IOException | RuntimeException | InterruptedException error) {
            end(process);
            if (error instanceof PgfreshException reported) {
                throw reported;
            }
            if (error instanceof InterruptedException) {
                Thread.currentThread().interrupt();
                throw new PgfreshException("could not wait for pgfresh", error);
            }
            throw new PgfreshException(
                    "could not read what \"" + binary + "\" printed",
                    "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.",
                    error);
        }
    }

    /**
     * Closes the standard input and waits for the program to end. Kills a program that doesn't end, because it isn't
     * pgfresh.
     */
    private static void end(Process process) {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (IOException gone) {
            // The binary has ended.
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reads the line that the binary prints when it is ready. */
    private static Server readLine(Process process) throws IOException, InterruptedException {
        String line = process.inputReader(StandardCharsets.UTF_8).readLine();
        if (line == null) {
            end(process);
            throw new PgfreshException(
                    "pgfresh ended with exit code " + process.waitFor() + " before it was ready",
                    "Its own message is on standard error.");
        }
        Json fields = Json.read(line);
        if (fields.has("error")) {
            throw Api.error(fields.object("error"));
        }
        URI address = URI.create(fields.text("http_url"));
        if (address.getHost() == null) {
            throw new IllegalArgumentException("there is no address");
        }
        return new Server(
                new Api(address.getHost(), address.getPort(), fields.text("password"), null),
                fields.text("holder"),
                process,
                null);
    }

    Database lease(Options options) {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("template", options.template());
        body.put("name", options.name());
        body.put("isolation", options.isolation());
        body.put("holder", holder);
        body.values().removeIf(""::equals);
        if (options.record()) {
            body.put("record", true);
        }
        return new Database(this, api.send("POST", "/v1/databases", Optional.of(Json.write(body)), LEASED));
    }

    /** If the client verifies the server, adds parameters to a database URL that make drivers verify it, too. */
    String verified(String url) {
        return api.verified(url);
    }

    /**
     * Resets a database, which ends a test. The response has a message if the test exceeded its budget, and lists the
     * faults that never fired.
     */
    Json reset(String name, boolean closeSessions, Map<String, Object> test) {
        Map<String, Object> body = new LinkedHashMap<>(test);
        if (closeSessions) {
            body.put("close_sessions", true);
        }
        return api.send("POST", path(name) + "/reset", Optional.of(Json.write(body)));
    }

    void setReplicaLag(String name, String lag) {
        api.send("POST", path(name) + "/replica", Optional.of(Json.write(Map.of("lag", lag))));
    }

    void promoteReplica(String name) {
        api.send("POST", path(name) + "/promote", Optional.empty());
    }

    void fault(String name, Fault fault) {
        api.send("POST", path(name) + "/faults", Optional.of(Json.write(fault.members())));
    }

    /** Returns the faults requested since the lease or the last reset, and separately the faults that haven't fired. */
    Json faults(String name) {
        return api.send("GET", path(name) + "/faults", Optional.empty(), Map.of("faults", List.class));
    }

    /** Returns the statements since the lease or the last reset, with a message if they exceed {@code limits}. */
    Json statements(String name, Map<String, Object> limits) {
        return api.send("GET", path(name) + "/statements" + query(limits), Optional.empty(), MEASURED);
    }

    /**
     * Ends a lease. The response has a URL if pgfresh keeps the database of a failed test, has a message if the test
     * exceeded its budget, and lists the faults that never fired.
     */
    Json release(String name, boolean failed, Map<String, Object> test) {
        Map<String, Object> members = new LinkedHashMap<>();
        if (failed) {
            members.put("failed", true);
        }
        members.putAll(test);
        return api.send("DELETE", path(name) + query(members), Optional.empty());
    }

    private static String query(Map<String, Object> members) {
        String query = members.entrySet().stream()
                .map(member -> member.getKey() + "=" + encode(member.getValue().toString()))
                .collect(Collectors.joining("&"));
        return query.isEmpty() ? "" : "?" + query;
    }

    private static String path(String name) {
        return "/v1/databases/" + encode(name);
    }

    private static String encode(String text) {
        // URLEncoder encodes for forms: a space becomes a plus, and a plus becomes %2B.
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
