package pgfresh;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
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
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Where databases come from: the server of "pgfresh run", or else the one that pgfresh finds or starts for us. */
final class Server {

    /** What pgfresh is asked for. */
    private static final List<String> SERVE = List.of("serve", "--shared", "--json");

    /** What to do where the binary is another one. */
    private static final String SET = "Set PGFRESH_BIN to where pgfresh is, or unset it.";

    /** The server of this process, or why there is none, once somebody has asked. */
    private static Supplier<Server> joined;

    private final Api api;

    /** Whom its databases belong to; may be empty. */
    private final String holder;

    /**
     * pgfresh ends when its standard input does, which the kernel closes at the end of this process. Until then it is
     * reachable from here, or else the garbage collector would close it. Null if somebody else started the server.
     */
    final Process process;

    private Server(Api api, String holder, Process process) {
        this.api = api;
        this.holder = holder;
        this.process = process;
    }

    /** All calls return the same server, or throw what the first one did. */
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

    /** Finds or starts a server, as these variables say. */
    static Server join(Map<String, String> environment) {
        String control = environment.getOrDefault("PGFRESH_CONTROL", "");
        if (control.isEmpty()) {
            return start(binary(environment), environment);
        }
        return existing(control, environment.getOrDefault("PGFRESH_HOLDER", ""));
    }

    private static Server existing(String control, String holder) {
        try {
            URI address = new URI(control);
            String user = address.getUserInfo();
            if (user != null && user.startsWith(":")) {
                return new Server(new Api(address.getHost(), address.getPort(), user.substring(1)), holder, null);
            }
        } catch (URISyntaxException unreadable) {
            // Said below, without its text: the secret may be in it.
        }
        throw new PgfreshException("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT", "");
    }

    private static String binary(Map<String, String> environment) {
        String set = environment.getOrDefault("PGFRESH_BIN", "");
        String wanted = set.isEmpty() ? "pgfresh" : set;
        Stream<String> places = wanted.contains("/")
                ? Stream.of(wanted)
                : Stream.of(environment.getOrDefault("PATH", "").split(File.pathSeparator))
                        .map(folder -> folder + "/" + wanted);
        return places.flatMap(Server::sayable).filter(place -> Files.isExecutable(place) && !Files.isDirectory(place))
                .findFirst()
                .orElseThrow(() -> notFound(wanted, !set.isEmpty()))
                .toString();
    }

    /** Empty where Java cannot say the path: in the locale C, any that is not ASCII. */
    private static Stream<Path> sayable(String text) {
        try {
            return Stream.of(Path.of(text));
        } catch (InvalidPathException unsayable) {
            return Stream.empty();
        }
    }

    private static PgfreshException notFound(String wanted, boolean isSet) {
        if (isSet && sayable(wanted).anyMatch(Files::exists)) {
            return new PgfreshException("cannot run \"" + wanted + "\": it is not an executable file", SET);
        }
        return isSet
                ? new PgfreshException("cannot find \"" + wanted + "\", which PGFRESH_BIN names", SET)
                : new PgfreshException(
                        "cannot find \"" + wanted + "\"",
                        "Install it with the script of its release, sh pgfresh-install.sh, "
                                + "or set PGFRESH_BIN to where it is.");
    }

    /**
     * Runs pgfresh and waits for the line that says where its server is. It may have a template to build first, which takes
     * as long as the migrations do. What it does and what goes wrong, it says itself.
     */
    private static Server start(String binary, Map<String, String> environment) {
        List<String> command = new ArrayList<>(SERVE);
        command.add(0, binary);
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        // Those of this process it has anyway. As strings they would lose what the locale cannot say.
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
            return read(process);
        } catch (IOException | RuntimeException | InterruptedException error) {
            end(process);
            if (error instanceof PgfreshException told) {
                throw told;
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

    /** Waits until it has said all. What is not pgfresh need not end by itself. */
    private static void end(Process process) {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (IOException gone) {
            // So has pgfresh.
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reads the line that pgfresh prints. */
    private static Server read(Process process) throws IOException, InterruptedException {
        String line = process.inputReader(StandardCharsets.UTF_8).readLine();
        if (line == null) {
            throw new PgfreshException(
                    "pgfresh ended with exit code " + process.waitFor() + " before it was ready",
                    "Its own message is on standard error.");
        }
        Json place = Json.read(line);
        if (place.has("error")) {
            throw Api.told(place.object("error"));
        }
        URI address = URI.create(place.text("http_url"));
        if (address.getHost() == null) {
            throw new IllegalArgumentException("there is no address");
        }
        return new Server(
                new Api(address.getHost(), address.getPort(), place.text("password")), place.text("holder"), process);
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
        return new Database(this, api.send("POST", "/v1/databases", Optional.of(Json.write(body))));
    }

    /** Resets a database, which ends a test. The answer has a message if that exceeded its budget. */
    Json reset(String name, boolean closeSessions, Map<String, Object> test) {
        Map<String, Object> body = new LinkedHashMap<>(test);
        if (closeSessions) {
            body.put("close_sessions", true);
        }
        return api.send("POST", path(name) + "/reset", Optional.of(Json.write(body)));
    }

    /** What has run in a database since it was leased or reset. The answer has a message if that exceeds these limits. */
    Json statements(String name, Map<String, Object> limits) {
        return api.send("GET", path(name) + "/statements" + query(limits), Optional.empty());
    }

    /**
     * Ends a lease. The answer has a URL if the database of a failed test was kept, and a message if the test exceeded its
     * budget.
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
        // This encodes for forms, where a space is a plus; a plus itself is %2B.
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
