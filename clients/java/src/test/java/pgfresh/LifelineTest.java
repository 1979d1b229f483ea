package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LifelineTest {

    @Test
    void binaryEndsWithProcess(@TempDir Path directory) throws Exception {
        StandIn binary = new StandIn(directory.resolve("log"));
        ProcessBuilder starter = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-cp",
                        System.getProperty("java.class.path"),
                        Joiner.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT);
        starter.environment().clear();
        starter.environment().putAll(binary.environment("{\"http_url\": \"http://127.0.0.1:1/\", \"password\": \"x\"}"));
        Process process = starter.start();
        assertEquals("joined", process.inputReader().readLine());
        assertFalse(binary.lines().contains("ended"), "the binary ended before the process");
        process.destroyForcibly().waitFor();
        Instant deadline = Instant.now().plus(Duration.ofSeconds(10));
        while (!binary.lines().contains("ended")) {
            assertTrue(Instant.now().isBefore(deadline), "the binary still runs 10 s after the end of the process");
            Thread.sleep(1);
        }
    }

    /** Starts the stand-in, runs the garbage collector, prints a line, and waits for a signal. */
    static final class Joiner {
        public static void main(String[] arguments) throws InterruptedException {
            Server.ofThisProcess();
            System.gc();
            System.out.println("joined");
            Thread.sleep(Duration.ofHours(1).toMillis());
        }
    }
}
