package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** In the locale C, that of most containers, Java has no strings for paths and variables that are not ASCII. */
class LocaleTest {

    @Test
    void foldersOfPathAndVariablesNeedNotBeAscii(@TempDir Path directory) throws Exception {
        Path pgfresh = directory.resolve("pgfresh");
        Path noted = directory.resolve("noted");
        Files.writeString(pgfresh, "#!/bin/sh\nprintf %s \"$GREETING\" >\"$NOTED\"\n");
        pgfresh.toFile().setExecutable(true);
        // The shell writes what Java itself could not say.
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String program = "GREETING=$(printf 'gr\\303\\274\\303\\237e') PATH=$(printf '/gr\\303\\274n'):\"$FOUND\" exec \"$0\" \"$@\"";
        ProcessBuilder shell = new ProcessBuilder(
                        "/bin/sh", "-c", program, java, "-cp", System.getProperty("java.class.path"), Leaser.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT);
        shell.environment().clear();
        shell.environment().put("LC_ALL", "C");
        shell.environment().put("FOUND", directory + ":/usr/bin:/bin");
        shell.environment().put("NOTED", noted.toString());
        Process process = shell.start();
        assertEquals("pgfresh ended with exit code 0 before it was ready", process.inputReader().readLine());
        process.waitFor();
        assertEquals("grüße", Files.readString(noted));
    }

    /** Says why it has no database. */
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
