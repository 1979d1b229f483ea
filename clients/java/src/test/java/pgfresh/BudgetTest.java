package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.TestInstance.Lifecycle;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.testkit.engine.EngineTestKit;
import org.junit.platform.testkit.engine.Event;

/**
 * Tests budgets and statement counts on a real server. The nested classes are input that the tests in this class run.
 */
class BudgetTest {

    /** Connects with a parameter that prevents the driver from sending SET statements first. */
    static Connection connect(Database database) throws SQLException {
        return DriverManager.getConnection(database.jdbcUrl() + "&assumeMinServerVersion=9.0");
    }

    static void booksOf(Connection connection, int authors) throws SQLException {
        for (int author = 0; author < authors; author++) {
            try (PreparedStatement select = connection.prepareStatement("SELECT 'book' WHERE ? >= 0")) {
                select.setInt(1, author);
                select.executeQuery();
            }
        }
    }

    static void booksOf(Database database, int authors) throws SQLException {
        try (Connection connection = connect(database)) {
            booksOf(connection, authors);
        }
    }

    /** Returns the result of each test in the class: "" if it passed, or the failure message. */
    static Map<String, String> run(Class<?> type) {
        Map<String, String> outcomes = new TreeMap<>();
        for (Event event : EngineTestKit.engine("junit-jupiter")
                .selectors(selectClass(type))
                .configurationParameter("junit.jupiter.execution.parallel.enabled", "false")
                .execute()
                .testEvents()
                .finished()
                .list()) {
            String message = event.getRequiredPayload(TestExecutionResult.class)
                    .getThrowable()
                    .map(Throwable::getMessage)
                    .orElse("");
            outcomes.put(event.getTestDescriptor().getDisplayName().replaceFirst("\\(.*", ""), message);
        }
        return outcomes;
    }

    private static String firstLine(String text) {
        return text.lines().findFirst().orElse("");
    }

    @Test
    void exceededBudgetListsStatements() {
        Map<String, String> outcomes = run(Tests.class);
        assertEquals(
                "budget exceeded: 8 statements, 7 allowed; one query ran 7 times with different values, 6 allowed|"
                        + "7 × SELECT ? WHERE ? >= ? (N+1)|1 × CREATE TABLE t()",
                String.join("|", outcomes.remove("beyond").lines().map(String::strip).toList()));
        String slow = outcomes.remove("slow");
        assertTrue(slow.startsWith("budget exceeded: ") && slow.contains(" ms in the database, 0.0 ms allowed"), slow);
        Map<String, String> others = new TreeMap<>();
        outcomes.forEach((name, message) -> others.put(name, firstLine(message)));
        assertEquals(
                new TreeMap<>(Map.of(
                        "atItsBudget", "",
                        "nothing", "",
                        "withoutBudget", "",
                        "failsAnyway", "its own reason",
                        "closes", "budget exceeded: 3 statements, 2 allowed",
                        "wrong", "invalid value for \"time\": \"soon\"",
                        "ofTheClass", "budget exceeded: one query ran 21 times with different values, 20 allowed",
                        "noDatabase", "the test has a budget and no database of its own")),
                others);
    }

    @Budget(nPlusOne = 20)
    static class Tests {
        @Test
        @Budget(statements = 7, nPlusOne = 7, time = "10min")
        void atItsBudget(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 7);
        }

        @Test
        @Budget(statements = 7, nPlusOne = 6)
        void beyond(@FreshDatabase Database database) throws SQLException {
            try (Connection connection = connect(database)) {
                connection.createStatement().execute("CREATE TABLE t ()");
                booksOf(connection, 7);
            }
        }

        @Test
        @Budget(statements = 0)
        void nothing(@FreshDatabase Database database) {}

        @Test
        @Budget(time = "0")
        void slow(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 1);
        }

        @Test
        @Budget(statements = 0)
        void failsAnyway(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 1);
            fail("its own reason");
        }

        @Test
        @Budget(statements = 2)
        void closes(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 3);
            database.close();
        }

        @Test
        @Budget(time = "soon")
        void wrong(@FreshDatabase Database database) {}

        @Test
        @Budget(statements = 100)
        void withoutBudget(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 20);
        }

        @Test
        void ofTheClass(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 21);
        }

        @Test
        void noDatabase() {}
    }

    /** Class whose tests share one database. */
    @TestInstance(Lifecycle.PER_CLASS)
    abstract static class Sharing {
        Database shared;

        @BeforeAll
        void share(@FreshDatabase("shared") Database shared) {
            this.shared = shared;
        }
    }

    @Test
    void resetRestartsCount() {
        Map<String, String> outcomes = new TreeMap<>();
        run(Shared.class).forEach((name, message) -> outcomes.put(name, firstLine(message)));
        String beyond = "budget exceeded: 6 statements, 5 allowed";
        assertEquals(
                new TreeMap<>(Map.of(
                        "[1] 5", "", "[2] 6", beyond, "[3] 4", "",
                        "[1] 5 5", "", "[2] 6 5", beyond, "[3] 5 6", beyond)),
                outcomes);
    }

    static class Shared extends Sharing {
        @BeforeEach
        void reset() {
            shared.resetClosingSessions();
        }

        @Budget(statements = 5)
        @ParameterizedTest
        @ValueSource(ints = {5, 6, 4})
        void each(int count) throws SQLException {
            booksOf(shared, count);
        }

        @Nested
        class WithAnother {
            @Budget(statements = 5)
            @ParameterizedTest
            @ValueSource(strings = {"5 5", "6 5", "5 6"})
            void inBetween(String counts, @FreshDatabase Database own) throws SQLException {
                for (String count : counts.split(" ")) {
                    own.resetClosingSessions();
                    booksOf(own, Integer.parseInt(count));
                }
            }
        }
    }

    @Test
    void resetAfterTestStartsNextOne() {
        Map<String, String> outcomes = new TreeMap<>();
        run(ResetAfterwards.class).forEach((name, message) -> outcomes.put(name, firstLine(message)));
        assertEquals(
                new TreeMap<>(Map.of(
                        "[1] 5", "the test has a budget and no database of its own",
                        "[2] 6", "budget exceeded: 6 statements, 5 allowed",
                        "[3] 4", "")),
                outcomes);
    }

    static class ResetAfterwards extends Sharing {
        @AfterEach
        void reset() {
            shared.resetClosingSessions();
        }

        @Budget(statements = 5)
        @ParameterizedTest
        @ValueSource(ints = {5, 6, 4})
        void each(int count) throws SQLException {
            booksOf(shared, count);
        }
    }

    @Test
    void blockCountsStatements(@FreshDatabase(record = true) Database database) throws SQLException {
        try (Connection connection = connect(database)) {
            connection.createStatement().execute("SELECT 1");
            Statements ran = database.statements(() -> {
                connection.createStatement().execute("SELECT 2");
                for (int i = 0; i < 2; i++) {
                    connection.createStatement().execute("VALUES (1), (2)");
                }
            });
            connection.createStatement().execute("SELECT 3");
            assertEquals("3 statements: 2x VALUES (?), …, 1x SELECT ?", ran.toString());
            assertEquals(List.of(4L, 1L), ran.mostFrequent().stream().map(ExecutedStatement::rows).toList());
            assertEquals(3, ran.count());
            assertTrue(ran.complete());
            assertTrue(ran.time().compareTo(Duration.ZERO) > 0);
            assertEquals("0 statements", database.statements(() -> {}).toString());
        }
        Statements over = database.statements(() -> {
            database.resetClosingSessions();
            booksOf(database, 1);
        });
        assertEquals(1, over.count());
        assertFalse(over.complete());
    }

    @Test
    void anyParameterCanRequestRecord() {
        assertEquals(Map.of("counts", "", "doesNotCount", ""), run(Prepared.class));
    }

    static class Prepared {
        @BeforeEach
        void prepare(@FreshDatabase Database database) {}

        @Test
        void counts(@FreshDatabase(record = true) Database database) {
            assertEquals(0, database.statements(() -> {}).count());
        }

        @Test
        void doesNotCount(@FreshDatabase Database database) {
            String code = assertThrows(PgfreshException.class, () -> database.statements(() -> {})).code().orElseThrow();
            assertEquals("55000", code);
        }
    }

    @Test
    void annotationReplacesBudgetOfFile(@TempDir Path project) throws Exception {
        List<String> output = inRun(project, "[budget]\nstatements = 3\n", OfTheFile.class, List.of("--keep-failed"));
        assertEquals(
                List.of("beyond: budget exceeded: 4 statements, 3 allowed", "raised: ", "within: "),
                output.stream().filter(line -> line.matches("(beyond|raised|within): .*")).sorted().toList());
        long kept = output.stream().filter("pgfresh: kept the database of a failed test"::equals).count();
        assertEquals(1, kept, () -> String.join("\n", output));
        assertFalse(output.contains("pgfresh: a test exceeded its budget"), "pgfresh repeats the error of the test: " + output);
    }

    static class OfTheFile {
        @Test
        void within(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 3);
        }

        @Test
        void beyond(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 4);
        }

        @Test
        @Budget(statements = 4)
        void raised(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 4);
        }
    }

    @Test
    void profileNamesTests(@TempDir Path project) throws Exception {
        List<String> options = List.of("--profile", "--report", "report.json");
        inRun(project, "", Profiled.class, options);
        List<String> seen = new ArrayList<>();
        for (JsonNode test : new ObjectMapper().readTree(project.resolve("report.json").toFile()).path("tests")) {
            seen.add(test.path("name").asText() + " " + test.path("n_plus_one").findValuesAsText("count"));
        }
        String type = Profiled.class.getName();
        assertEquals(List.of(type + ".once []", type + ".slow [30]", type + ".slowInShared [31]"), seen.stream().sorted().toList());
    }

    static class Profiled extends Sharing {
        @Test
        void once(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 1);
        }

        @Test
        void slow(@FreshDatabase Database database) throws SQLException {
            booksOf(database, 30);
        }

        @Test
        void slowInShared() throws SQLException {
            shared.resetClosingSessions();
            booksOf(shared, 31);
        }
    }

    /**
     * Runs the tests in a class with "pgfresh run", and returns the output. {@code file} is the project's
     * pgfresh.toml.
     */
    private static List<String> inRun(Path project, String file, Class<?> type, List<String> options) throws Exception {
        Files.writeString(project.resolve("pgfresh.toml"), file);
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String binary = System.getenv().getOrDefault("PGFRESH_BIN", "pgfresh");
        List<String> command = new ArrayList<>(List.of(binary, "run"));
        command.addAll(options);
        command.addAll(List.of("--", java, "-Dstdout.encoding=UTF-8", Runner.class.getName(), type.getName()));
        ProcessBuilder builder = new ProcessBuilder(command).directory(project.toFile()).redirectErrorStream(true);
        String absolute = String.join(":", Arrays.stream(System.getProperty("java.class.path").split(":"))
                .map(path -> Path.of(path).toAbsolutePath().toString())
                .toList());
        builder.environment().put("CLASSPATH", absolute);
        builder.environment().keySet().removeAll(List.of("PGFRESH_CONTROL", "PGFRESH_HOLDER"));
        Process process = builder.start();
        process.getOutputStream().close();
        List<String> lines = process.inputReader().lines().toList();
        assertEquals(0, process.waitFor(), () -> String.join("\n", lines));
        return lines;
    }

    static final class Runner {
        public static void main(String[] arguments) throws ClassNotFoundException {
            run(Class.forName(arguments[0])).forEach((name, message) -> System.out.println(name + ": " + firstLine(message)));
        }
    }
}
