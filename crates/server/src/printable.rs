//! Makes names and values from a database safe to print on a terminal.

/// Returns `text` as a single line that is safe to print. Escapes the characters that a terminal would
/// interpret, e.g. control characters and changes of the writing direction.
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
    // Put another character in front, because the standard library escapes a combining character only at the
    // start of a string.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}
