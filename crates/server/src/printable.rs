//! Makes names and values from a database safe to print on a terminal.

/// Returns `text` on a single line. Escapes characters that a terminal would interpret, e.g. control
/// characters and changes of the writing direction.
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
    // The standard library only escapes a combining character at the start of a string.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}
