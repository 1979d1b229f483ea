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

fn is_safe_character(sign: char) -> bool {
    // Prepend another character, because the standard library escapes a combining character only at the start
    // of a string.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}
