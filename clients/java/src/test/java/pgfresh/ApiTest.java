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
                "close_sessions | Close them first, or call resetClosingSessions().",
                "record | Lease it with @FreshDatabase(record = true), or a @Budget.",
                "make_room | Whatever the server says.",
            })
    void hintsNameOptionsOfThisPackage(String remedy, String hint) {
        String text = "{\"message\": \"no\", \"hint\": \"Whatever the server says.\", \"remedy\": \"" + remedy + "\"}";
        PgfreshException error = Api.error(Json.read(text));
        assertEquals(hint, error.hint().orElseThrow());
        assertEquals(remedy, error.remedy().orElseThrow());
    }
}
