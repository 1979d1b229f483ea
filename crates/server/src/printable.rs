//! Names and values of a database, as they are shown: text that does nothing to a terminal.

/// `text` on one line: what a terminal would not print as it is, such as control characters and changes of direction, is
/// escaped.
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
    // The standard library escapes what combines with the character before only at the begin of a text.
    matches!(sign, ' '..='~') || format!("x{sign}").escape_debug().nth(1) == Some(sign)
}
