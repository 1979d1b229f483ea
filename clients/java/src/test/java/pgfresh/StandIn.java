package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The script that the client takes for pgfresh, and what it noted. */
record StandIn(Path log) {

    static final Path TRANSCRIPTS = Path.of("../transcripts").toAbsolutePath().normalize();

    /** The variables of this process, with those that make a client start the script. */
    Map<String, String> environment(String line) {
        Map<String, String> environment = new HashMap<>(System.getenv());
        environment.keySet().removeAll(List.of("PGFRESH_CONTROL", "PGFRESH_HOLDER"));
        environment.put("PGFRESH_BIN", TRANSCRIPTS.resolve("pgfresh").toString());
        environment.put("FAKE_LOG", log.toString());
        environment.put("FAKE_LINE", line);
        return environment;
    }

    List<String> noted() throws IOException {
        try {
            return Files.readAllLines(log);
        } catch (NoSuchFileException nothing) {
            return List.of();
        }
    }

    void assertStarted(int times) throws IOException {
        assertEquals(times, noted().stream().filter(line -> line.startsWith("started")).count());
    }
}
