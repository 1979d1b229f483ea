package pgfresh;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests how the client finds, starts and ends the binary. */
class ServerTest {

    @Test
    void missingBinaryHasHintForSystem() {
        String hint = Server.installHint("Linux");
        assertTrue(hint.startsWith("Run \"make install\" in a checkout"), hint);
        String mac = Server.installHint("Mac OS X");
        assertTrue(mac.startsWith("Run \"cargo install --locked --path crates/pgfresh\" in a checkout"), mac);
        String windows = Server.installHint("Windows 11");
        assertTrue(windows.startsWith("pgfresh runs on Linux and macOS, not on Windows 11. Run the tests in WSL 2"), windows);
    }

    @Test
    void programThatIsNotPgfreshEnds(@TempDir Path directory) throws IOException {
        Path binary = directory.resolve("other");
        Path id = directory.resolve("id");
        Map<String, String> environment = new StandIn(directory.resolve("log")).environment("");
        environment.put("PGFRESH_BIN", binary.toString());
        Map<String, String> messages = Map.of(
                "echo garbage", "could not read what", "exec >&-", "pgfresh ended with exit code 137");
        for (Map.Entry<String, String> message : messages.entrySet()) {
            String script = "#!/bin/sh\necho $$ >" + id + "\n" + message.getKey() + "\nexec sleep 60\n";
            Files.writeString(binary, script);
            Files.setPosixFilePermissions(binary, PosixFilePermissions.fromString("rwxr-xr-x"));
            PgfreshException error = assertThrows(PgfreshException.class, () -> Server.join(environment));
            assertTrue(error.getMessage().startsWith(message.getValue()), error.getMessage());
            long process = Long.parseLong(Files.readString(id).trim());
            ProcessHandle.of(process).ifPresent(handle -> handle.onExit().orTimeout(10, TimeUnit.SECONDS).join());
        }
    }
}
