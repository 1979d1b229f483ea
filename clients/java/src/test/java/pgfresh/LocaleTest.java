package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the locale C, which most containers use: Java can't represent paths and variables that aren't ASCII. */
class LocaleTest {

    @Test
    void acceptsPathAndVariablesThatAreNotAscii(@TempDir Path directory) throws Exception {
        Path pgfresh = directory.resolve("pgfresh");
        Path output = directory.resolve("output");
        Files.writeString(pgfresh, "#!/bin/sh\nprintf %s \"$TEXT\" >\"$OUTPUT\"\n");
        pgfresh.toFile().setExecutable(true);
        // The shell sets values that Java can't represent in this locale.
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String program = "TEXT=$(printf 'gr\\303\\274\\303\\237e') PATH=$(printf '/gr\\303\\274n'):\"$FOUND\" exec \"$0\" \"$@\"";
        ProcessBuilder shell = new ProcessBuilder(
                        "/bin/sh", "-c", program, java, "-cp", System.getProperty("java.class.path"), Leaser.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT);
        shell.environment().clear();
        shell.environment().put("LC_ALL", "C");
        shell.environment().put("FOUND", directory + ":/usr/bin:/bin");
        shell.environment().put("OUTPUT", output.toString());
        Process process = shell.start();
        assertEquals("pgfresh ended with exit code 0 before it was ready", process.inputReader().readLine());
        process.waitFor();
        assertEquals("grüße", Files.readString(output));
    }

    /** Leases a database and prints the error. */
    static final class Leaser {
        public static void main(String[] arguments) {
            try {
                Database.fresh();
            } catch (RuntimeException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
