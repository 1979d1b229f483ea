package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ApiTest {

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '`',
            value = {
                "Close them first, or set \"close_sessions\". | Close them first, or call resetClosingSessions().",
                "Lease it with \"record\": true. | Lease it with @FreshDatabase(record = true), or a @Budget.",
                "Release some databases. | Release some databases.",
            })
    void hintsNameOptionsOfThisPackage(String http, String java) {
        assertEquals(java, Api.translateHint(http));
    }
}
