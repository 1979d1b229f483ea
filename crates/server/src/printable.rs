//! Prints names and values of a database without effects on the terminal.

/// Returns `text` on one line. Escapes characters that a terminal would interpret, such as control characters and changes of
/// direction.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for sign in text.chars() {
        if is_printed(sign) {
            line.push(sign);
        } else {
            line.extend(sign.escape_debug());
        }
    }
    line
}

fn is_printed(sign: char) -> bool {
    // The standard library escapes a combining character only at the begin of a text.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}
