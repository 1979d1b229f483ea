//! Messages of a server as text, without what differs between two real errors of one kind.

/// Fields of errors and notices that two real errors share: severity, SQLSTATE, message, detail, hint, file and routine.
///
/// The others are the context, which names a tuple, and the line in the file, which differs between minor releases.
const SHARED: &[u8] = b"SVCMDHFR";

/// Returns a message of the server as text.
pub(super) fn shown(tag: u8, body: &[u8]) -> String {
    let letter = char::from(tag);
    match tag {
        b'E' | b'N' => format!("{letter} {}", fields(body)),
        // The object id of a table differs between databases.
        b'T' => format!("{letter} {:?}", columns(body)),
        _ => format!("{letter} {}", String::from_utf8_lossy(body)),
    }
}

/// Returns the shared fields of an error, with `#` for each number: process ids and transaction ids differ.
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
    // In rollback isolation, the gateway words this error, without a place in the server's source.
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

/// Returns names and types of a `RowDescription`.
fn columns(body: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut columns = Vec::new();
    let mut rest = &body[2..];
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        columns.push((String::from_utf8_lossy(&rest[..end]).into_owned(), rest[end + 7..end + 19].to_vec()));
        rest = &rest[end + 19..];
    }
    columns
}

/// Removes the begin of an answer, `RowDescription` or `CopyOutResponse`, directly before an error.
///
/// A real error of a statement that returns rows may come before or after it. A statement that waits for the lock of a table fails
/// before it, and one that waits for the lock of a row after it. A fault always comes before it.
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
