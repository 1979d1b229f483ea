package pgfresh;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Tests how the client finds the binary. */
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
}
