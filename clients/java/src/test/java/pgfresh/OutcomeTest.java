package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.testkit.engine.EngineTestKit;

/**
 * Tests that the client reports failed tests to pgfresh. The failing tests run in another process, with a server that
 * records the releases.
 */
class OutcomeTest {

    /** Lines "NAME failed: TEST" or "NAME passed: TEST". NAME is the template that the lease requested. */
    private final List<String> released = Collections.synchronizedList(new ArrayList<>());

    @Test
    void reportsFailedTests() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/v1/databases", this::answer);
        server.start();
        try {
            run("http://:secret@127.0.0.1:" + server.getAddress().getPort());
        } finally {
            server.stop(0);
        }
        Collections.sort(released);
        assertEquals(
                List.of(
                        "aborted passed: Each.aborted",
                        "afterwards failed: Outer$Inner.passes",
                        "class_of_failed failed: OfFailed",
                        "class_of_passed passed: OfPassed",
                        "failed failed: Each.failed",
                        "failed_too failed: Each.failed",
                        "invocation_1 failed: Each.invocation [1] 1",
                        "invocation_2 passed: Each.secondInvocation [1] 2",
                        "outer_class failed: Outer",
                        "passed passed: Each.passed"),
                released);
    }

    private void answer(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().toString().substring("/v1/databases".length());
        byte[] body = new byte[0];
        if (exchange.getRequestMethod().equals("POST")) {
            Json request = Json.read(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            Map<String, Object> leased = new HashMap<>(Map.of("url", "", "jdbc_url", "", "socket_url", "", "template", ""));
            leased.put("name", request.text("template"));
            body = Json.write(leased).getBytes(StandardCharsets.UTF_8);
        } else {
            String query = URLDecoder.decode(path, StandardCharsets.UTF_8).substring(1);
            String type = OutcomeTest.class.getName() + "$";
            released.add(query.replace("?failed=true&test=" + type, " failed: ").replace("?test=" + type, " passed: "));
        }
        exchange.getResponseHeaders().set("Connection", "close");
        exchange.sendResponseHeaders(body.length == 0 ? 204 : 201, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    private static void run(String control) throws Exception {
        ProcessBuilder builder = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-cp",
                        System.getProperty("java.class.path"),
                        Runner.class.getName())
                .inheritIO();
        builder.environment().put("PGFRESH_CONTROL", control);
        assertEquals(0, builder.start().waitFor());
    }

    static final class Runner {
        public static void main(String[] arguments) {
            DiscoverySelector[] classes = Stream.of(Each.class, OfPassed.class, OfFailed.class, Outer.class)
                    .map(type -> selectClass(type))
                    .toArray(DiscoverySelector[]::new);
            EngineTestKit.engine("junit-jupiter")
                    .selectors(classes)
                    .execute()
                    .testEvents()
                    .assertStatistics(events -> events.succeeded(3).failed(4).aborted(1));
        }
    }

    static class Each {
        @Test
        void passed(@FreshDatabase(template = "passed") Database database) {}

        @Test
        void failed(@FreshDatabase(template = "failed") Database one, @FreshDatabase(value = "2", template = "failed_too") Database two) {
            fail();
        }

        @Test
        void aborted(@FreshDatabase(template = "aborted") Database database) {
            Assumptions.abort();
        }

        @ParameterizedTest
        @ValueSource(strings = "1")
        void invocation(String which, @FreshDatabase(template = "invocation_1") Database database) {
            fail();
        }

        @ParameterizedTest
        @ValueSource(strings = "2")
        void secondInvocation(String which, @FreshDatabase(template = "invocation_2") Database database) {}
    }

    static class OfPassed {
        @BeforeAll
        static void share(@FreshDatabase(template = "class_of_passed") Database database) {}

        @Test
        void passed() {}
    }

    static class OfFailed {
        @BeforeAll
        static void share(@FreshDatabase(template = "class_of_failed") Database database) {}

        @Test
        void failed(@FreshDatabase Database database) {
            assertTrue(database.name().isEmpty(), "the database has a name");
        }
    }

    static class Outer {
        @BeforeAll
        static void share(@FreshDatabase(template = "outer_class") Database database) {}

        @AfterEach
        void check(@FreshDatabase(value = "own", template = "afterwards") Database database) {
            fail();
        }

        @Nested
        class Inner {
            @Test
            void passes() {}
        }
    }
}
