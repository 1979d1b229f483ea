//! Makes names and values from a database safe to print on a terminal.

/// Returns `text` as a single line that is safe to print. Characters that a terminal would interpret, such as
/// control characters and changes of the writing direction, are escaped.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for sign in text.chars() {
        if is_safe_character(sign) {
            line.push(sign);
        } else {
            line.extend(sign.escape_debug());
        }
    }
    line
}

/// Like [`printable`], but keeps line breaks and tabs.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.split_inclusive(['\n', '\t'])
        .map(|part| {
            let (text, end) = part.split_at(part.trim_end_matches(['\n', '\t']).len());
            printable(text) + end
        })
        .collect()
}

fn is_safe_character(sign: char) -> bool {
    // Prepend another character, because the standard library escapes a combining character only at the start
    // of a string.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_never_sees_control_characters() {
        let text = "a\u{1b}]0;title\u{7}\r\n\tb \u{202e}c \u{9b}2J \u{e9} \u{1f418}\n";
        let expected = "a\\u{1b}]0;title\\u{7}\\r\n\tb \\u{202e}c \\u{9b}2J \u{e9} \u{1f418}\n";
        assert_eq!(printable_lines(text), expected);
        assert!(!printable(text).contains(char::is_control));
    }
}
