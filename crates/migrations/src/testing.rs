//! Builds transcripts for tests.

use std::time::{Duration, Instant};

use pgwire::{RequestOutcome, SessionTranscript, TranscribedRequest, query, split_statements};

/// Keywords that a statement contains and its command tag doesn't.
const LEFT_OUT: [&str; 12] = [
    "UNIQUE",
    "OR",
    "REPLACE",
    "TEMP",
    "TEMPORARY",
    "UNLOGGED",
    "CONSTRAINT",
    "RECURSIVE",
    "ONLY",
    "DEFAULT",
    "TRUSTED",
    "PROCEDURAL",
];
/// First words of command tags that have two words, such as `CREATE TABLE`.
const WITH_OBJECT: [&str; 4] = ["CREATE", "ALTER", "DROP", "REFRESH"];

/// Returns the transcript of a session in `database`. Each text in `sql` is a Query that succeeded after 10 ms. Command
/// tags are derived from the statements. A BEGIN opens a transaction that the next ROLLBACK or COMMIT ends.
#[must_use]
pub fn transcript_in(database: &str, sql: &[&str]) -> SessionTranscript {
    let began = Instant::now();
    let mut status = b'I';
    let mut at = began;
    let requests = sql.iter().map(|text| {
        let sent = at;
        at += Duration::from_millis(10);
        let tags: Vec<_> = split_statements(text).into_iter().map(tag_of).collect();
        for tag in &tags {
            status = match tag.as_str() {
                "BEGIN" | "START TRANSACTION" => b'T',
                "COMMIT" | "ROLLBACK" if !text.to_lowercase().contains(" to ") => b'I',
                _ => status,
            };
        }
        let outcome = RequestOutcome { answered: at, tags, error: None, status };
        TranscribedRequest { messages: query(text.as_bytes()).into(), sent, outcome: Some(outcome) }
    });
    let requests = requests.collect();
    let parameters = vec![("user".to_owned(), "postgres".to_owned())];
    SessionTranscript { database: database.to_owned(), parameters, began, requests, is_cut: false }
}

/// Returns the transcript of a migration whose only session is in the database `app`. See [`transcript_in`].
#[must_use]
pub fn transcript_of(sql: &[&str]) -> Vec<SessionTranscript> {
    vec![transcript_in("app", sql)]
}

/// Returns the probable command tag of a statement.
#[must_use]
pub fn tag_of(statement: &str) -> String {
    let words: Vec<String> = statement
        .split(|letter: char| letter.is_whitespace() || "(;".contains(letter))
        .map(str::to_uppercase)
        .filter(|word| !word.is_empty() && !LEFT_OUT.contains(&word.as_str()))
        .collect();
    let first = words.first().map_or("", String::as_str);
    let second = words.get(1).map_or("", String::as_str);
    match first {
        "END" => "COMMIT".to_owned(),
        "ABORT" => "ROLLBACK".to_owned(),
        "START" => "START TRANSACTION".to_owned(),
        "PREPARE" if second == "TRANSACTION" => "PREPARE TRANSACTION".to_owned(),
        "INSERT" => "INSERT 0 1".to_owned(),
        "UPDATE" | "DELETE" | "SELECT" | "MERGE" | "COPY" => format!("{first} 1"),
        "WITH" | "VALUES" | "TABLE" => "SELECT 1".to_owned(),
        "CREATE" if second == "TABLE" && words.windows(2).any(|pair| pair == ["AS", "SELECT"]) => {
            "SELECT 1".to_owned()
        }
        "TRUNCATE" => "TRUNCATE TABLE".to_owned(),
        "LOCK" => "LOCK TABLE".to_owned(),
        _ if WITH_OBJECT.contains(&first) && second == "MATERIALIZED" => format!("{first} MATERIALIZED VIEW"),
        _ if WITH_OBJECT.contains(&first) && second == "FOREIGN" => {
            format!("{first} FOREIGN {}", words.get(2).map_or("TABLE", String::as_str))
        }
        _ if WITH_OBJECT.contains(&first) => format!("{first} {second}"),
        _ => first.to_owned(),
    }
}
