package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Script that the client starts in place of pgfresh, and its log. */
record StandIn(Path log) {

    static final Path TRANSCRIPTS = Path.of("../transcripts").toAbsolutePath().normalize();

    /**
     * Returns the environment variables of this process, changed so that a client starts the script, which prints a
     * line.
     */
    Map<String, String> environment(String line) {
        Map<String, String> environment = new HashMap<>(System.getenv());
        environment.keySet().removeAll(List.of("PGFRESH_CONTROL", "PGFRESH_HOLDER"));
        environment.put("PGFRESH_BIN", TRANSCRIPTS.resolve("pgfresh").toString());
        environment.put("FAKE_LOG", log.toString());
        environment.put("FAKE_LINE", line);
        return environment;
    }

    List<String> lines() throws IOException {
        try {
            return Files.readAllLines(log);
        } catch (NoSuchFileException nothing) {
            return List.of();
        }
    }

    void assertStarted(int times) throws IOException {
        assertEquals(times, lines().stream().filter(line -> line.startsWith("started")).count());
    }
}
