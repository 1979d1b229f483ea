//! Creates error messages that look like PostgreSQL's own, depending on the SQLSTATE, the statement and the server
//! version.
//!
//! The texts were taken from PostgreSQL 13, 15 and 18, running in the C locale. Source line numbers differ between minor versions.

use std::borrow::Cow;

use pgwire::{ErrorResponse, HEADER, SqlLexer, begins_with, encode, has_words};
use server::Major;

/// Condition names, one per line after the SQLSTATE. Source: `errcodes.txt`.
const CONDITIONS: &str = include_str!("conditions.txt");

/// The server and the statement that an error comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occasion<'a> {
    /// The server's major version.
    pub(super) major: u32,
    /// Process ID of the backend.
    pub(super) process: u32,
    pub(super) statement: &'a str,
    /// Whether the transaction fails during its commit.
    pub(super) is_commit: bool,
}

/// Fields of an error, except for its severity and SQLSTATE.
#[derive(Debug, Default)]
struct ServerError {
    message: Cow<'static, str>,
    detail: Option<Cow<'static, str>>,
    hint: Option<&'static str>,
    /// Context (PostgreSQL's field "where").
    context: Option<String>,
    /// Location in the server's source code: file, and function in `routine`.
    file: &'static str,
    line: u32,
    routine: &'static str,
}

/// Returns the message for the error `sqlstate`. `severity` is the server's localized word for ERROR.
pub(super) fn error(sqlstate: &str, severity: &[u8], occasion: Occasion<'_>) -> Vec<u8> {
    encode(b'E', &fields(sqlstate, severity, "ERROR", &server_error(sqlstate, occasion)))
}

/// Returns the last message of a session that the server ends with `sqlstate`.
pub(crate) fn fatal(sqlstate: &str, major: u32) -> Vec<u8> {
    let occasion = Occasion { major, process: 0, statement: "", is_commit: false };
    let error = server_error(sqlstate, occasion);
    // For this SQLSTATE, the server sends a notice instead of an error. Source: `quickdie`.
    let (tag, severity) = if sqlstate == "57P02" { (b'N', "WARNING") } else { (b'E', "FATAL") };
    encode(tag, &fields(sqlstate, severity.as_bytes(), severity, &error))
}

/// Returns the value of the field `code` from the body of an ErrorResponse.
pub(super) fn field(error: &[u8], code: u8) -> Option<&[u8]> {
    let body = error.get(HEADER..)?;
    ErrorResponse::fields(body).find_map(|(found, value)| (found == code).then_some(value))
}

fn fields(sqlstate: &str, severity: &[u8], english: &str, error: &ServerError) -> Vec<u8> {
    let line = error.line.to_string();
    let all = [
        (b'S', Some(severity)),
        (b'V', Some(english.as_bytes())),
        (b'C', Some(sqlstate.as_bytes())),
        (b'M', Some(error.message.as_bytes())),
        (b'D', error.detail.as_deref().map(str::as_bytes)),
        (b'H', error.hint.map(str::as_bytes)),
        (b'W', error.context.as_deref().map(str::as_bytes)),
        (b'F', Some(error.file.as_bytes())),
        (b'L', Some(line.as_bytes())),
        (b'R', Some(error.routine.as_bytes())),
    ];
    let mut body = Vec::with_capacity(256);
    for (code, value) in all {
        let Some(value) = value else { continue };
        body.push(code);
        body.extend_from_slice(value);
        body.push(0);
    }
    body.push(0);
    body
}

fn server_error(sqlstate: &str, occasion: Occasion<'_>) -> ServerError {
    match sqlstate {
        "40001" => serialization_failure(occasion),
        "40P01" => deadlock(occasion),
        "55P03" => lock_not_available(occasion),
        "57014" => ServerError {
            context: row_lock(occasion.statement),
            ..interrupt("canceling statement due to user request", occasion.major, [3194, 3349, 3466])
        },
        "25006" => ServerError {
            message: format!("cannot execute {} in a read-only transaction", command(occasion.statement))
                .into(),
            file: "utility.c",
            line: by_major(occasion.major, [414, 414, 411]),
            routine: "PreventCommandIfReadOnly",
            ..ServerError::default()
        },
        "53100" | "53200" | "53400" => out_of_resources(sqlstate, occasion.major),
        "57P01" | "57P02" | "57P05" | "25P03" | "25P04" => session_end(sqlstate, occasion.major),
        "57P03" | "53300" => refusal(sqlstate, occasion.major),
        other => ServerError {
            message: condition(other).unwrap_or(other).to_owned().into(),
            file: "pl_exec.c",
            line: by_major(occasion.major, [3907, 3906, 3927]),
            routine: "exec_stmt_raise",
            ..ServerError::default()
        },
    }
}

/// Returns the value for `major` from `values`, which are in the order of the versions 13, 15 and 18.
fn by_major<T: Copy>(major: u32, values: [T; 3]) -> T {
    Major(major).of_errors(values)
}

fn serialization_failure(occasion: Occasion<'_>) -> ServerError {
    let Occasion { major, statement, is_commit, .. } = occasion;
    let locks_rows = has_words(statement, &["for", "update"]) || has_words(statement, &["for", "share"]);
    let modifies = begins_with(statement, &["update", "delete", "merge"])
        || begins_with(statement, &["with"]) && has_words(statement, &["update"]);
    if !is_commit && (modifies || locks_rows) {
        let (file, line, routine) = match () {
            () if begins_with(statement, &["delete"]) => {
                ("nodeModifyTable.c", [1046, 1558, 1702], "ExecDelete")
            }
            () if begins_with(statement, &["merge"]) => {
                ("nodeModifyTable.c", [3164, 3164, 3411], "ExecMergeMatched")
            }
            () if modifies => ("nodeModifyTable.c", [1564, 2399, 2585], "ExecUpdate"),
            () => ("nodeLockRows.c", [234, 236, 237], "ExecLockRows"),
        };
        return ServerError {
            message: "could not serialize access due to concurrent update".into(),
            file,
            line: by_major(major, line),
            routine,
            ..ServerError::default()
        };
    }
    let (reason, line, routine) = match () {
        () if is_commit => {
            ("during commit attempt", [4887, 4879, 4727], "PreCommit_CheckForSerializationFailure")
        }
        () if begins_with(statement, &["insert"])
            || begins_with(statement, &["copy"]) && has_words(statement, &["from", "stdin"]) =>
        {
            ("during conflict in checking", [4491, 4483, 4349], "CheckForSerializableConflictIn")
        }
        () => ("during conflict out checking", [4133, 4125, 4003], "CheckForSerializableConflictOutNeeded"),
    };
    ServerError {
        message: "could not serialize access due to read/write dependencies among transactions".into(),
        detail: Some(format!("Reason code: Canceled on identification as a pivot, {reason}.").into()),
        hint: Some("The transaction might succeed if retried."),
        file: "predicate.c",
        line: by_major(major, line),
        routine,
        ..ServerError::default()
    }
}

fn deadlock(occasion: Occasion<'_>) -> ServerError {
    let (one, other) = (occasion.process, occasion.process.wrapping_add(1));
    let detail = format!(
        "Process {one} waits for ShareLock on transaction 791; blocked by process {other}.\n\
         Process {other} waits for ShareLock on transaction 790; blocked by process {one}."
    );
    ServerError {
        message: "deadlock detected".into(),
        detail: Some(detail.into()),
        hint: Some("See server log for query details."),
        context: row_lock(occasion.statement),
        file: "deadlock.c",
        line: by_major(occasion.major, [1154, 1147, 1138]),
        routine: "DeadLockReport",
    }
}

fn lock_not_available(occasion: Occasion<'_>) -> ServerError {
    let Occasion { major, statement, .. } = occasion;
    let relation = relation(statement).filter(|_| has_words(statement, &["nowait"]));
    let Some(relation) = relation else {
        return ServerError {
            context: row_lock(statement),
            ..interrupt("canceling statement due to lock timeout", major, [3157, 3312, 3439])
        };
    };
    let (what, file, line, routine) = if begins_with(statement, &["lock"]) {
        ("relation", "namespace.c", [402, 400, 606], "RangeVarGetRelidExtended")
    } else {
        ("row in relation", "heapam.c", [4701, 4937, 5032], "heap_lock_tuple")
    };
    ServerError {
        message: format!("could not obtain lock on {what} \"{relation}\"").into(),
        file,
        line: by_major(major, line),
        routine,
        ..ServerError::default()
    }
}

fn interrupt(message: &'static str, major: u32, line: [u32; 3]) -> ServerError {
    ServerError {
        message: message.into(),
        file: "postgres.c",
        line: by_major(major, line),
        routine: "ProcessInterrupts",
        ..ServerError::default()
    }
}

fn out_of_resources(sqlstate: &str, major: u32) -> ServerError {
    let (message, hint, file, line, routine) = match sqlstate {
        "53100" => (
            "could not extend file \"base/16384/16385\": No space left on device",
            Some("Check free disk space."),
            "md.c",
            [466, 486, 641],
            by_major(major, ["mdextend", "mdextend", "mdzeroextend"]),
        ),
        "53200" => (
            "out of shared memory",
            Some(by_major(
                major,
                [
                    "You might need to increase max_locks_per_transaction.",
                    "You might need to increase max_locks_per_transaction.",
                    "You might need to increase \"max_locks_per_transaction\".",
                ],
            )),
            "lock.c",
            [1036, 1033, 1080],
            "LockAcquireExtended",
        ),
        _ => (
            by_major(
                major,
                [
                    "temporary file size exceeds temp_file_limit (64kB)",
                    "temporary file size exceeds temp_file_limit (64kB)",
                    "temporary file size exceeds \"temp_file_limit\" (64kB)",
                ],
            ),
            None,
            "fd.c",
            [2080, 2202, 2290],
            by_major(major, ["FileWrite", "FileWrite", "FileWriteV"]),
        ),
    };
    let line = by_major(major, line);
    ServerError { message: message.into(), hint, file, line, routine, ..ServerError::default() }
}

fn session_end(sqlstate: &str, major: u32) -> ServerError {
    if sqlstate == "57P02" {
        return ServerError {
            message: "terminating connection because of crash of another server process".into(),
            detail: Some(
                "The postmaster has commanded this server process to roll back the current transaction and exit, \
                 because another server process exited abnormally and possibly corrupted shared memory."
                    .into(),
            ),
            hint: Some(
                "In a moment you should be able to reconnect to the database and repeat your command.",
            ),
            file: "postgres.c",
            line: by_major(major, [2783, 2895, 2995]),
            routine: "quickdie",
            ..ServerError::default()
        };
    }
    let (message, line) = match sqlstate {
        "57P05" => ("terminating connection due to idle-session timeout", [3374, 3374, 3513]),
        "25P03" => ("terminating connection due to idle-in-transaction timeout", [3204, 3363, 3487]),
        "25P04" => ("terminating connection due to transaction timeout", [3500, 3500, 3500]),
        _ => ("terminating connection due to administrator command", [3077, 3211, 3356]),
    };
    interrupt(message, major, line)
}

fn refusal(sqlstate: &str, major: u32) -> ServerError {
    if sqlstate == "53300" {
        return ServerError {
            message: "sorry, too many clients already".into(),
            file: "proc.c",
            line: by_major(major, [362, 357, 457]),
            routine: "InitProcess",
            ..ServerError::default()
        };
    }
    let (file, routine) = by_major(
        major,
        [
            ("postmaster.c", "ProcessStartupPacket"),
            ("postmaster.c", "ProcessStartupPacket"),
            ("backend_startup.c", "BackendInitialize"),
        ],
    );
    ServerError {
        message: "the database system is starting up".into(),
        file,
        line: by_major(major, [2357, 2415, 309]),
        routine,
        ..ServerError::default()
    }
}

/// Returns the condition name for `sqlstate`, or `None` if PostgreSQL doesn't define one.
fn condition(sqlstate: &str) -> Option<&'static str> {
    CONDITIONS.lines().find_map(|line| line.strip_prefix(sqlstate)?.strip_prefix(' '))
}

/// Returns the error context of a statement that updates, deletes or locks a row. Returns `None` for other statements.
fn row_lock(statement: &str) -> Option<String> {
    let doing = match () {
        () if begins_with(statement, &["update"]) => "updating",
        () if begins_with(statement, &["delete"]) => "deleting",
        () if has_words(statement, &["for", "update"]) => "locking",
        () => return None,
    };
    relation(statement).map(|name| format!("while {doing} tuple (0,1) in relation \"{name}\""))
}

/// Returns the uppercase command name that PostgreSQL shows in errors, such as `CREATE TABLE`.
fn command(statement: &str) -> String {
    let words = words(statement);
    let at = |at: usize| words.get(at).map_or("", String::as_str);
    if begins_with(statement, &["select", "with", "values", "table"]) && has_words(statement, &["for"]) {
        let strength = words.iter().skip_while(|word| *word != "for").nth(1).cloned().unwrap_or_default();
        return format!("SELECT FOR {}", strength.to_uppercase());
    }
    let calls = |name: &str| words.iter().any(|word| word == name);
    match at(0) {
        "select" if calls("nextval") => "nextval()".to_owned(),
        "select" if calls("setval") => "setval()".to_owned(),
        "copy" => "COPY FROM".to_owned(),
        "truncate" => "TRUNCATE TABLE".to_owned(),
        "lock" => "LOCK TABLE".to_owned(),
        "create" | "drop" | "alter" => {
            let modifiers = ["or", "replace", "temp", "temporary", "unlogged", "unique", "global", "local"];
            let object = words[1..].iter().find(|word| !modifiers.contains(&word.as_str()));
            format!("{} {}", at(0), object.map_or("", String::as_str)).to_uppercase()
        }
        first => first.to_uppercase(),
    }
}

/// Returns the name of the table that the statement changes or locks. Otherwise returns the first table that it reads.
fn relation(statement: &str) -> Option<String> {
    let words = words(statement);
    let after = |word: &str| words.iter().position(|found| found == word).map(|at| at + 1);
    let start = match words.first()?.as_str() {
        "update" => 1,
        "lock" => 1 + usize::from(words.get(1).is_some_and(|word| word == "table")),
        _ => after("from")?,
    };
    let mut rest = words[start..].iter().skip_while(|word| *word == "only");
    let mut name = rest.next()?;
    while rest.next().is_some_and(|word| word == ".") {
        name = rest.next()?;
    }
    Some(name.clone())
}

/// Splits a statement into names, keywords and dots, with the case that the server gives them.
fn words(statement: &str) -> Vec<String> {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    std::iter::from_fn(|| lexer.token())
        .filter_map(|token| token.name().or_else(|| token.is_sign(b'.').then(|| ".".to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sqlstate: &str, statement: &str, is_commit: bool) -> String {
        let occasion = Occasion { major: 18, process: 7, statement, is_commit };
        let error = error(sqlstate, b"ERROR", occasion);
        let fields = ErrorResponse::fields(&error[HEADER..])
            .map(|(code, value)| format!("{}={}", char::from(code), String::from_utf8_lossy(value)));
        fields.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn errors_have_words_of_their_statement() {
        for (sqlstate, statement, is_commit, expected) in [
            (
                "40001",
                "UPDATE t SET a = 1",
                false,
                "M=could not serialize access due to concurrent update|F=nodeModifyTable.c|L=2585|R=ExecUpdate",
            ),
            (
                "40001",
                "INSERT INTO t VALUES (1)",
                false,
                "D=Reason code: Canceled on identification as a pivot, during conflict in checking.",
            ),
            (
                "40001",
                "COMMIT",
                true,
                "during commit attempt.|H=The transaction might succeed if retried.|F=predicate.c",
            ),
            (
                "40P01",
                "DELETE FROM ONLY s.\"T\"",
                false,
                "W=while deleting tuple (0,1) in relation \"T\"|F=deadlock.c",
            ),
            (
                "55P03",
                "SELECT * FROM a.t FOR UPDATE NOWAIT",
                false,
                "M=could not obtain lock on row in relation \"t\"|F=heapam.c",
            ),
            (
                "55P03",
                "LOCK TABLE t NOWAIT",
                false,
                "M=could not obtain lock on relation \"t\"|F=namespace.c",
            ),
            ("55P03", "TRUNCATE t", false, "M=canceling statement due to lock timeout|F=postgres.c"),
            (
                "25006",
                "CREATE UNLOGGED TABLE t ()",
                false,
                "M=cannot execute CREATE TABLE in a read-only transaction",
            ),
            ("25006", "SELECT nextval('s')", false, "M=cannot execute nextval() in a read-only transaction"),
            ("23505", "INSERT INTO t VALUES (1)", false, "C=23505|M=unique_violation|F="),
            ("XX123", "SELECT 1", false, "C=XX123|M=XX123|F="),
        ] {
            let text = text(sqlstate, statement, is_commit);
            assert!(
                text.starts_with("S=ERROR|V=ERROR|C=") && text.contains(expected),
                "{sqlstate} {statement}: {text}"
            );
        }
    }

    #[test]
    fn last_message_has_severity_of_server() {
        for (sqlstate, tag, severity) in
            [("57P01", b'E', "FATAL"), ("57P02", b'N', "WARNING"), ("57P03", b'E', "FATAL")]
        {
            let message = fatal(sqlstate, 15);
            assert_eq!((message[0], field(&message, b'V')), (tag, Some(severity.as_bytes())));
        }
    }
}
