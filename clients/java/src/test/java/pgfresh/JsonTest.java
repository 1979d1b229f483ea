package pgfresh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {

    private static final String DIFFICULT = "\u0000 \n\t\b\f\r \" \\ / é € \ud83d\ude00 \u001f";

    @Test
    void readsTextOfAnotherWriter() throws Exception {
        Map<String, Object> object = Map.of(
                "text", DIFFICULT, "list", new Object[] {1, "]", new int[0], Map.of("a", "}")}, "flag", true, "n", -1.5e3);
        String text = new ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(Map.of("inner", object));
        assertEquals(DIFFICULT, Json.read(text).object("inner").text("text"));
    }

    @Test
    void readsEscapes() {
        assertEquals("\"\\/\b\f\n\r\té", Json.read("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\"}").text("a"));
    }

    @Test
    void anotherReaderReadsWrittenText() throws Exception {
        String text = Json.write(Map.of("na\"me", DIFFICULT, "flag", true));
        Map<?, ?> read = new ObjectMapper().readValue(text, Map.class);
        assertEquals(Map.of("na\"me", DIFFICULT, "flag", true), read);
    }

    @Test
    void readsNumbersAndLists() {
        Json json = Json.read("{\"n\": -1.5e3, \"flag\": true, \"list\": [1, {\"n\": 2}, [], {\"n\": 3}]}");
        assertEquals(-1500, json.number("n"));
        assertEquals(List.of(true, false), List.of(json.flag("flag"), json.flag("n")));
        assertEquals(List.of(2.0, 3.0), json.objects("list").stream().map(object -> object.number("n")).toList());
        assertEquals(List.of(), json.objects("n"));
        assertEquals(0, json.number("list"));
    }

    @Test
    void memberOfAnotherTypeIsEmptyText() {
        Json json = Json.read(" {\"a\": 1, \"b\": null, \"c\": [], \"d\": {}} ");
        for (String name : new String[] {"a", "b", "c", "d", "e"}) {
            assertEquals("", json.text(name));
        }
        assertThrows(IllegalArgumentException.class, () -> json.object("a"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", "[]", "{", "{}{}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":\"\\x\"}",
                "{\"a\":\"\\u12\"}", "{\"a\":[1}", "{\"a\":what}", "{a:1}"
            })
    void rejectsTextThatIsNotOneObject(String text) {
        assertThrows(IllegalArgumentException.class, () -> Json.read(text));
    }
}
