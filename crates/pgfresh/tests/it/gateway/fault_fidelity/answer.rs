//! Formats a server's messages as text, without the parts that differ between two real errors of the same kind.

/// Error and notice fields that are the same in two real errors: severity, SQLSTATE, message, detail,
/// hint, file and routine.
///
/// The other fields are the context, which names a tuple, and the line in the file, which differs
/// between minor releases.
const SHARED: &[u8] = b"SVCMDHFR";

/// Returns a server's message as text.
pub(super) fn shown(tag: u8, body: &[u8]) -> String {
    let letter = char::from(tag);
    match tag {
        b'E' | b'N' => format!("{letter} {}", fields(body)),
        // A table's OID differs between databases.
        b'T' => format!("{letter} {:?}", columns(body)),
        _ => format!("{letter} {}", String::from_utf8_lossy(body)),
    }
}

/// Returns an error's shared fields, with `#` for each number, because process IDs and transaction IDs differ.
fn fields(body: &[u8]) -> String {
    let mut shared = Vec::new();
    for field in body.split(|byte| *byte == 0).filter(|field| !field.is_empty()) {
        let text = String::from_utf8_lossy(field);
        if field[0] == b'C' {
            shared.push(text.into_owned());
        } else if SHARED.contains(&field[0]) {
            shared.push(without_numbers(&without_path(&text)));
        } else if field[0] == b'L' {
            assert!(text[1..].parse::<u32>().is_ok(), "{text}");
            shared.push("L#".to_owned());
        }
    }
    // In rollback isolation, the gateway generates this error, which doesn't have a location in the server's source.
    if shared.iter().any(|field| field == "C25P01") {
        shared.retain(|field| !field.starts_with(['F', 'L', 'R']));
    }
    shared.join(" | ")
}

/// Replaces the path of a table's file, which differs between tablespaces.
fn without_path(text: &str) -> String {
    match text.split_once("extend file \"") {
        Some((before, after)) => {
            let rest = after.split_once('"').map_or("", |(_, rest)| rest);
            format!("{before}extend file PATH{rest}")
        }
        None => text.to_owned(),
    }
}

fn without_numbers(text: &str) -> String {
    let mut result = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            result.push(letter);
        } else if !result.ends_with('#') {
            result.push('#');
        }
    }
    result
}

/// Returns the column names and types in a `RowDescription`.
fn columns(body: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut columns = Vec::new();
    let mut rest = &body[2..];
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        columns.push((String::from_utf8_lossy(&rest[..end]).into_owned(), rest[end + 7..end + 19].to_vec()));
        rest = &rest[end + 19..];
    }
    columns
}

/// Removes the start of a response, `RowDescription` or `CopyOutResponse`, if an error follows directly.
///
/// If a statement returns rows, a real error can come before or after this start. It comes before the start
/// if the statement waits for a table lock, and after it if the statement waits for a row lock. A fault
/// always comes before it.
pub(super) fn without_heads(answers: Vec<String>) -> Vec<String> {
    let is_head = |answer: &str| answer.starts_with("T ") || answer.starts_with("H ");
    let mut kept: Vec<String> = Vec::new();
    for answer in answers {
        if answer.starts_with("E ") && kept.last().is_some_and(|last| is_head(last)) {
            kept.pop();
        }
        kept.push(answer);
    }
    kept
}
