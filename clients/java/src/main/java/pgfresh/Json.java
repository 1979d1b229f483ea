package pgfresh;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** JSON object (RFC 8259). */
final class Json {

    static final Json EMPTY = new Json(Map.of());

    private final Map<String, Object> members;

    private Json(Map<String, Object> members) {
        this.members = members;
    }

    /**
     * Parses an object.
     *
     * @throws IllegalArgumentException if the text isn't exactly one object
     */
    static Json read(String text) {
        return new Reader(text).document();
    }

    /** Returns the string called {@code name}, or "" if that member is absent or isn't a string. */
    String text(String name) {
        return members.get(name) instanceof String text ? text : "";
    }

    boolean has(String name) {
        return members.containsKey(name);
    }

    /**
     * Returns the object called {@code name}.
     *
     * @throws IllegalArgumentException if that member is absent or isn't an object
     */
    Json object(String name) {
        if (members.get(name) instanceof Json object) {
            return object;
        }
        throw new IllegalArgumentException("there is no object \"" + name + "\"");
    }

    /**
     * Returns this object if it has the members {@code needs} with these types.
     *
     * @throws IllegalArgumentException if a member is absent or has another type
     */
    Json require(Map<String, Class<?>> needs) {
        needs.forEach((name, type) -> {
            if (!type.isInstance(members.get(name))) {
                throw new IllegalArgumentException("it has no \"" + name + "\"");
            }
        });
        return this;
    }

    /** Returns the number called {@code name}, or 0 if that member is absent or isn't a number. */
    double number(String name) {
        return members.get(name) instanceof Double number ? number : 0;
    }

    /** Returns whether the member called {@code name} is true. */
    boolean flag(String name) {
        return Boolean.TRUE.equals(members.get(name));
    }

    /** Returns the objects in the array called {@code name}. The list is empty if the array is absent. */
    List<Json> objects(String name) {
        if (!(members.get(name) instanceof List<?> list)) {
            return List.of();
        }
        return list.stream().filter(Json.class::isInstance).map(Json.class::cast).toList();
    }

    /** Returns the strings in the array called {@code name}. The list is empty if the array is absent. */
    List<String> texts(String name) {
        if (!(members.get(name) instanceof List<?> list)) {
            return List.of();
        }
        return list.stream().filter(String.class::isInstance).map(String.class::cast).toList();
    }

    /** Encodes an object whose values are strings, numbers and booleans. */
    static String write(Map<String, Object> members) {
        return members.entrySet().stream()
                .map(member -> quote(member.getKey()) + ":"
                        + (member.getValue() instanceof String text ? quote(text) : member.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c == '"' || c == '\\' ? "\\" : "").append(c);
            }
        }
        return quoted.append('"').toString();
    }

    /** Recursive-descent parser. Each method reads one element and advances past it. */
    private static final class Reader {
        private static final char END = '\0';

        private final String text;
        private int at;

        Reader(String text) {
            this.text = text;
        }

        Json document() {
            Json object = object();
            if (peek() != END) {
                throw unexpected();
            }
            return object;
        }

        /** Skips white space and returns the next character without consuming it, or END. */
        private char peek() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            return at < text.length() ? text.charAt(at) : END;
        }

        private boolean skip(char wanted) {
            boolean found = peek() == wanted;
            at += found ? 1 : 0;
            return found;
        }

        private void expect(char wanted) {
            if (!skip(wanted)) {
                throw unexpected();
            }
        }

        private IllegalArgumentException unexpected() {
            return new IllegalArgumentException("not the JSON that was expected, from character " + at + " on");
        }

        private Json object() {
            Map<String, Object> members = new LinkedHashMap<>();
            expect('{');
            if (!skip('}')) {
                do {
                    String name = string();
                    expect(':');
                    members.put(name, value());
                } while (skip(','));
                expect('}');
            }
            return new Json(members);
        }

        private Object value() {
            return switch (peek()) {
                case '"' -> string();
                case '{' -> object();
                case '[' -> array();
                default -> word();
            };
        }

        private List<Object> array() {
            List<Object> values = new ArrayList<>();
            expect('[');
            if (!skip(']')) {
                do {
                    values.add(value());
                } while (skip(','));
                expect(']');
            }
            return values;
        }

        /** Reads a number, true, false or null. */
        private Object word() {
            int start = at;
            while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            String word = text.substring(start, at);
            try {
                return switch (word) {
                    case "null" -> null;
                    case "true", "false" -> Boolean.valueOf(word);
                    default -> Double.valueOf(word);
                };
            } catch (NumberFormatException unreadable) {
                throw unexpected();
            }
        }

        private String string() {
            expect('"');
            StringBuilder read = new StringBuilder();
            while (at < text.length() && text.charAt(at) != '"') {
                read.append(text.charAt(at) == '\\' ? escaped() : text.charAt(at++));
            }
            at++;
            if (at > text.length()) {
                throw unexpected();
            }
            return read.toString();
        }

        private char escaped() {
            String rest = text.substring(at + 1, Math.min(text.length(), at + 6));
            int known = rest.isEmpty() ? -1 : "\"\\/bfnrt".indexOf(rest.charAt(0));
            if (known >= 0) {
                at += 2;
                return "\"\\/\b\f\n\r\t".charAt(known);
            } else if (rest.matches("u[0-9a-fA-F]{4}")) {
                at += 6;
                return (char) Integer.parseInt(rest.substring(1), 16);
            }
            throw unexpected();
        }
    }
}
