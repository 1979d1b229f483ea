package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Plays the transcripts, which all clients follow. Their README.md explains the keys. */
class TranscriptsTest {

    private static final ObjectMapper JSON = new ObjectMapper();

    static Stream<String> transcripts() throws IOException {
        try (Stream<Path> files = Files.list(StandIn.TRANSCRIPTS)) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> name.endsWith(".json"))
                    .sorted()
                    .toList()
                    .stream();
        }
    }

    @ParameterizedTest
    @MethodSource("transcripts")
    void clientFollowsTranscript(String name, @TempDir Path directory) throws Exception {
        try (Stage stage = new Stage(name, new StandIn(directory.resolve("log")))) {
            stage.play();
        }
    }

    /** Plays a transcript with the real client. The stage stands in for the server, and a script for the binary. */
    private static final class Stage implements AutoCloseable {

        final HttpServer http = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        final JsonNode script;
        final StandIn binary;

        /** Step whose request hasn't arrived yet. Null if the step has no request. */
        final AtomicReference<JsonNode> expected = new AtomicReference<>();

        /** Error in a request. The client only sees a closed connection. */
        final AtomicReference<Throwable> wrong = new AtomicReference<>();

        Server server;
        Database database;

        Stage(String name, StandIn binary) throws IOException {
            String text = Files.readString(StandIn.TRANSCRIPTS.resolve(name));
            script = JSON.readTree(text.replace("{port}", String.valueOf(http.getAddress().getPort())));
            this.binary = binary;
            http.createContext("/", this::answer);
            http.start();
        }

        /** Ends the binary before JUnit removes the directory that the binary writes to. */
        @Override
        public void close() throws IOException {
            http.stop(0);
            if (server != null && server.process != null) {
                server.process.getOutputStream().close();
                server.process.onExit().join();
            }
        }

        void play() throws Exception {
            for (JsonNode step : script.path("steps")) {
                expected.set(step.has("request") ? step : null);
                AtomicReference<PgfreshException> raised = new AtomicReference<>();
                String printed = printedBy(() -> {
                    try {
                        execute(step);
                    } catch (PgfreshException error) {
                        raised.set(error);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
                assertNull(wrong.get(), () -> "a wrong request: " + wrong.get());
                assertNull(expected.get(), () -> "no request has come: " + raised.get());
                compare(step.path("raises"), raised.get());
                String prints = step.path("prints").asText();
                assertEquals(prints.isEmpty() ? "" : prints + System.lineSeparator(), printed);
            }
            binary.assertStarted(script.path("spawned").asInt());
            JsonNode arguments = script.path("start").path("arguments");
            if (!arguments.isMissingNode()) {
                Stream<String> parts = arguments.valueStream().map(JsonNode::asText);
                assertEquals("started " + String.join(" ", parts.toList()), binary.lines().get(0));
            }
        }

        void execute(JsonNode step) throws IOException {
            JsonNode with = step.path("with");
            switch (step.path("do").asText()) {
                case "lease" -> {
                    server = server == null ? Server.join(environment()) : server;
                    Options options = new Options(
                            with.path("template").asText(), with.path("name").asText(), with.path("isolation").asText());
                    database = server.lease(options);
                    compare(step.path("answer").path("body"), database);
                }
                case "reset" -> {
                    if (with.path("close_sessions").asBoolean()) {
                        database.resetClosingSessions();
                    } else {
                        database.reset();
                    }
                }
                case "fault" -> database.fault(fault(with));
                case "faults" -> compare(step.path("answer").path("body").path("faults"), database.faults());
                case "lag" -> database.setReplicaLag(with.path("lag").asText());
                case "promote" -> database.promoteReplica();
                case "check" -> raise(database.unfired());
                case "release" -> {
                    boolean failed = with.path("failed").asBoolean();
                    raise(database.release(failed, with.path("test").asText()));
                }
                default -> throw new AssertionError("unknown step " + step);
            }
        }

        static void raise(String unfired) {
            if (!unfired.isEmpty()) {
                throw new PgfreshException(unfired, "");
            }
        }

        static Fault fault(JsonNode with) {
            Fault fault;
            if (with.has("error")) {
                String error = with.path("error").asText();
                fault = error.equals("failover") ? Fault.failover() : Fault.error(error);
            } else if (with.has("connection")) {
                boolean silent = with.path("connection").asText().equals("silent");
                fault = silent ? Fault.connectionSilent() : Fault.connectionLost();
            } else if (with.has("bandwidth")) {
                fault = Fault.bandwidth(with.path("bandwidth").asText());
            } else {
                fault = Fault.delay(time(with, "delay"));
            }
            if (with.has("at")) {
                fault = fault.at(Fault.Moment.valueOf(with.path("at").asText().toUpperCase().replace(' ', '_')));
            }
            fault = with.has("statement") ? fault.statement(with.path("statement").asText()) : fault;
            fault = with.has("nth") ? fault.nth(with.path("nth").asLong()) : fault;
            fault = with.has("times") ? fault.times(with.path("times").asLong()) : fault;
            fault = with.has("duration") ? fault.duration(time(with, "duration")) : fault;
            return with.has("read_only") ? fault.readOnly(time(with, "read_only")) : fault;
        }

        static Duration time(JsonNode with, String name) {
            return Duration.ofMillis(Long.parseLong(with.path(name).asText().replace("ms", "")));
        }

        static void compare(JsonNode answer, List<FaultStatus> faults) throws IOException {
            List<Map<String, Object>> found = new ArrayList<>();
            for (FaultStatus fault : faults) {
                found.add(Map.of(
                        "number", found.size() + 1,
                        "fault", fault.text(),
                        "times", fault.times(),
                        "fired", fault.fired(),
                        "candidates", fault.candidates(),
                        "statements", fault.statements()));
            }
            assertEquals(answer, JSON.readTree(JSON.valueToTree(found).toString()));
        }

        Map<String, String> environment() {
            JsonNode start = script.path("start");
            Map<String, String> environment = binary.environment(start.path("line").toString());
            if (start.has("exit")) {
                environment.put("FAKE_EXIT", start.path("exit").asText());
            }
            script.path("environment").properties().forEach(e -> environment.put(e.getKey(), e.getValue().asText()));
            return environment;
        }

        static void compare(JsonNode answer, Database database) {
            Map<String, String> found = new HashMap<>(Map.of(
                    "name", database.name(),
                    "url", database.url(),
                    "jdbc_url", database.jdbcUrl(),
                    "socket_url", database.socketUrl(),
                    "template", database.template(),
                    "replica_url", database.replicaUrl()));
            found.values().removeIf(""::equals);
            assertEquals(answer, JSON.valueToTree(found));
        }

        static void compare(JsonNode raises, PgfreshException error) {
            if (raises.isMissingNode() || error == null) {
                assertEquals(raises.isMissingNode(), error == null, () -> raises + " is expected, and was " + error);
                return;
            }
            if (raises.has("text")) {
                assertEquals(raises.path("text").asText(), error.getMessage());
            } else {
                String begins = raises.path("begins").asText();
                assertTrue(error.getMessage().startsWith(begins), error.getMessage());
                assertTrue(error.getMessage().endsWith(raises.path("ends").asText()), error.getMessage());
            }
            if (raises.has("message")) {
                assertEquals(raises.path("message").asText(), error.primary());
                assertEquals(raises.path("code").asText(), error.code().orElse(""));
                assertEquals(raises.path("detail").asText(), error.detail().orElse(""));
                assertEquals(raises.path("hint").asText(), error.hint().orElse(""));
                assertEquals(raises.path("remedy").asText(), error.remedy().orElse(""));
            }
        }

        void answer(HttpExchange exchange) {
            JsonNode step = expected.getAndSet(null);
            try {
                JsonNode request = step.path("request");
                assertEquals(request.path("method").asText(), exchange.getRequestMethod());
                assertEquals(request.path("path").asText(), exchange.getRequestURI().toString());
                assertEquals(
                        "Bearer 5ec7e700000000000000000000000000",
                        exchange.getRequestHeaders().getFirst("Authorization"));
                assertEquals(request.path("body"), JSON.readTree(exchange.getRequestBody()));
                JsonNode answer = step.path("answer");
                exchange.getResponseHeaders().set("Connection", "close");
                if (answer.path("status").asInt() / 100 == 3) {
                    exchange.getResponseHeaders().set("Location", "/elsewhere");
                }
                if (answer.has("body")) {
                    byte[] body = JSON.writeValueAsBytes(answer.path("body"));
                    exchange.sendResponseHeaders(answer.path("status").asInt(), body.length);
                    exchange.getResponseBody().write(body);
                } else if (answer.has("status")) {
                    exchange.sendResponseHeaders(answer.path("status").asInt(), -1);
                }
                exchange.close();
            } catch (Throwable thrown) {
                wrong.set(thrown);
            }
        }

        /** Runs {@code code} and returns what it prints to standard error. */
        static String printedBy(Runnable code) {
            PrintStream usual = System.err;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setErr(new PrintStream(printed, true, StandardCharsets.UTF_8));
            try {
                code.run();
            } finally {
                System.setErr(usual);
            }
            return printed.toString(StandardCharsets.UTF_8);
        }
    }
}
