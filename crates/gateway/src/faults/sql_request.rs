//! Parses fault requests in SQL: `SET pgfresh.fault = '{"error": "40001", "at": "commit"}'`.
//!
//! The server treats `pgfresh.fault` as the setting of an unknown extension, so it accepts the statement and responds
//! as to any SET. A query string can begin with several requests. A prepared statement requests its fault again at each
//! Execute.

use contract::FaultRequest;
use pgwire::{SqlLexer, Token, TokenKind, query, split_zero, statement_places};

use super::fault::{Fault, FaultError};

/// Namespace of the setting.
const SPACE: &[u8] = b"pgfresh";
/// Statement that replaces an invalid request, so that the server refuses it as it refuses any invalid SET.
const FAILING: &[u8] = b"SET client_min_messages = 'pgfresh.fault'";
/// Hint for a request whose value isn't a JSON object.
const JSON_HINT: &str = "Write a JSON object, such as '{\"error\": \"40001\", \"at\": \"commit\"}'.";

/// Returns true if any statement in `sql` requests a fault. `sql` ends at its first zero byte.
pub(crate) fn has_request(sql: &[u8]) -> bool {
    let (sql, _) = split_zero(sql);
    names_pgfresh(sql) && statement_places(sql, true).into_iter().any(|place| is_request(&sql[place]))
}

/// Returns true if a client's message requests a fault, or prepares a statement that does.
pub(crate) fn requests_fault(tag: u8, body: &[u8]) -> bool {
    statements(tag, body).is_some_and(has_request)
}

/// Returns true if a statement requests a fault.
pub(super) fn is_request(sql: &[u8]) -> bool {
    requested_fault(sql).is_some()
}

/// Returns the fault that a statement requests, or the reason to refuse it. Returns `None` if the statement isn't a
/// request.
pub(super) fn requested_fault(sql: &[u8]) -> Option<Result<Fault, FaultError>> {
    if calls_set_config(sql) {
        let what = "set_config cannot request a fault".to_owned();
        return Some(Err(FaultError { what, hint: "Use SET pgfresh.fault.".to_owned() }));
    }
    requested_value(sql).map(|value| parse(&value))
}

/// Returns the faults that a Query message requests, or the reason to refuse them. Returns `None` for other messages,
/// and for requests in a failed transaction (`has_failed`), because the server refuses those by itself.
pub(super) fn requested_faults(
    tag: u8,
    body: &[u8],
    has_failed: bool,
) -> Option<Result<Vec<Fault>, FaultError>> {
    let sql = statements(tag, body).filter(|sql| tag == b'Q' && names_pgfresh(sql))?;
    let places = statement_places(sql, true);
    let requests: Vec<_> = places.into_iter().map(|place| requested_fault(&sql[place])).collect();
    let first = requests.iter().take_while(|request| request.is_some()).count();
    if first > 0 && has_failed {
        return None;
    }
    // Faults would count the statements before the request as candidates, so refuse the string.
    if requests[first..].iter().any(Option::is_some) {
        return Some(Err(FaultError {
            what: "the fault request comes after another statement in the same query string".to_owned(),
            hint: "Send it before the other statements, or in a query of its own.".to_owned(),
        }));
    }
    (first > 0).then(|| requests.into_iter().flatten().collect())
}

/// Returns false for most strings without a request, so that the gateway needn't split them into statements.
fn names_pgfresh(sql: &[u8]) -> bool {
    sql.windows(SPACE.len()).any(|word| word.eq_ignore_ascii_case(SPACE))
}

/// Returns the SQL text of a Query or Parse message. Returns `None` for other messages.
fn statements(tag: u8, body: &[u8]) -> Option<&[u8]> {
    match tag {
        b'Q' => Some(split_zero(body).0),
        b'P' => Some(split_zero(split_zero(body).1).0),
        _ => None,
    }
}

/// Returns a Query message that the server refuses. It replaces an invalid request.
pub(super) fn failing_message() -> Vec<u8> {
    query(FAILING)
}

/// Parses `SET [SESSION | LOCAL] pgfresh.fault =` and returns at most two tokens of the value. Returns `None` for any
/// other statement.
fn requested_value(sql: &[u8]) -> Option<Vec<Token<'_>>> {
    // The caller refuses literals with a prefix such as `E'…'`, so it doesn't matter how the server reads backslashes.
    let mut lexer = SqlLexer::new(sql, true);
    if !lexer.token()?.is_word(b"set") {
        return None;
    }
    let mut first = lexer.token()?;
    if first.is_word(b"session") || first.is_word(b"local") {
        first = lexer.token()?;
    }
    let is_name = is_called(&first, b"pgfresh.fault")
        || is_called(&first, SPACE) && lexer.token()?.is_sign(b'.') && is_called(&lexer.token()?, b"fault");
    let sign = lexer.token()?;
    if !is_name || !(sign.is_sign(b'=') || sign.is_word(b"to")) {
        return None;
    }
    let value: Vec<_> = std::iter::from_fn(|| lexer.token()).take(2).collect();
    (!value.is_empty()).then_some(value)
}

/// Returns true if `token` is the name `name`, quoted or not. The server ignores the case of setting names in both
/// forms.
fn is_called(token: &Token<'_>, name: &[u8]) -> bool {
    let quoted = token.text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    token.is_name() && quoted.unwrap_or(token.text).eq_ignore_ascii_case(name)
}

/// Returns true for `SELECT set_config('pgfresh.fault', …`, which would change the setting without adding a fault.
fn calls_set_config(sql: &[u8]) -> bool {
    let mut lexer = SqlLexer::new(sql, true);
    let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).take(6).collect();
    let [select, tokens @ ..] = &tokens[..] else { return false };
    let call = match tokens {
        [space, dot, call @ ..] if is_called(space, b"pg_catalog") && dot.is_sign(b'.') => call,
        call => call,
    };
    let [function, bracket, name, ..] = call else { return false };
    select.is_word(b"select")
        && is_called(function, b"set_config")
        && bracket.is_sign(b'(')
        && name.text.eq_ignore_ascii_case(b"'pgfresh.fault'")
}

/// Returns the text of a string literal. Returns `None` for literals with a prefix, such as `E'…'`.
fn literal(token: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(token).ok()?;
    if let Some(quoted) = text.strip_prefix('\'') {
        return Some(quoted.strip_suffix('\'')?.replace("''", "'"));
    }
    let delimiter = &text[..=text.strip_prefix('$')?.find('$')? + 1];
    text.strip_prefix(delimiter)?.strip_suffix(delimiter).map(str::to_owned)
}

fn parse(value: &[Token<'_>]) -> Result<Fault, FaultError> {
    let wrong = |why: String| FaultError {
        what: format!("pgfresh.fault is not a fault in JSON: {why}"),
        hint: JSON_HINT.to_owned(),
    };
    let text = match value {
        [value] if value.kind == TokenKind::Text => literal(value.text),
        _ => None,
    };
    let text = text.ok_or_else(|| wrong("it is not a plain string literal".to_owned()))?;
    // serde would accept an array with the members' values, so refuse it here.
    if text.trim_start().starts_with('[') {
        return Err(wrong("it is an array, not an object".to_owned()));
    }
    let request: FaultRequest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    request.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sql: &str) -> Option<Result<String, String>> {
        let body = [sql.as_bytes(), b"\0"].concat();
        let found = requested_faults(b'Q', &body, false)?;
        let words = |faults: Vec<Fault>| faults.iter().map(Fault::description).collect::<Vec<_>>().join(", ");
        Some(found.map(words).map_err(|error| error.what))
    }

    #[test]
    fn fault_is_read_from_each_form_of_set() {
        let words = Some(Ok("40001 at commit".to_owned()));
        for sql in [
            r#"SET pgfresh.fault = '{"error": "40001", "at": "commit"}'"#,
            r#"set session PGFRESH.fault to '{"error":"40001","at":"commit"}';"#,
            r#"/* x */ SET LOCAL pgfresh . fault=$j${"error": "40001", "at": "commit"}$j$"#,
            r#"SET "pgfresh"."fault" = '{"error": "40001", "at": "commit"}'"#,
            r#"SET SESSION pgfresh."Fault" TO '{"error": "40001", "at": "commit"}'"#,
            r#"SET "pgfresh.fault" = '{"error": "40001", "at": "commit"}'"#,
        ] {
            assert_eq!(request(sql), words, "{sql}");
        }
        for sql in [
            "SET pgfresh.faults = ''",
            "SET search_path = x",
            "SHOW pgfresh.fault",
            "",
            "SET pgfresh.fault =",
            r#"SET """pgfresh"."fault" = '{}'"#,
            "SELECT set_config('pgfresh.faults', '{}', false)",
            "SELECT 'set_config', ('pgfresh.fault')",
        ] {
            assert_eq!(request(sql), None, "{sql}");
        }
    }

    #[test]
    fn wrong_request_has_a_reason() {
        for (value, reason) in [
            ("''", "pgfresh.fault is not a fault in JSON: EOF while parsing"),
            ("'[]'", "pgfresh.fault is not a fault in JSON: it is an array, not an object"),
            ("DEFAULT", "pgfresh.fault is not a fault in JSON: it is not a plain string literal"),
            ("-1", "pgfresh.fault is not a fault in JSON: it is not a plain string literal"),
            ("'{}'\n'{}'", "pgfresh.fault is not a fault in JSON: trailing characters"),
            ("E'{}'", "pgfresh.fault is not a fault in JSON: it is not a plain string literal"),
            (r#"'{"eror": "40001"}'"#, "pgfresh.fault is not a fault in JSON: unknown field `eror`"),
            (r#"'{"error": "00000"}'"#, "\"00000\" is not an error SQLSTATE"),
        ] {
            let error = request(&format!("SET pgfresh.fault = {value}")).unwrap().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
        for call in ["set_config", "pg_catalog.set_config", "\"set_config\""] {
            let error = request(&format!("SELECT {call}('pgfresh.fault', '{{}}', false)")).unwrap();
            assert_eq!(error, Err("set_config cannot request a fault".to_owned()));
        }
    }

    #[test]
    fn only_requests_may_precede_a_request() {
        let one = r#"SET pgfresh.fault = '{"error": "40001"}'"#;
        let words = "40001 before statement";
        for sql in [format!("{one};"), format!("{one}; SELECT 1")] {
            assert_eq!(request(&sql), Some(Ok(words.to_owned())), "{sql}");
        }
        assert_eq!(request(&format!("{one}; {one}")), Some(Ok(format!("{words}, {words}"))));
        for sql in [format!("BEGIN; {one}"), format!("{one}; SELECT 1; {one}")] {
            let error = request(&sql).unwrap().unwrap_err();
            assert!(error.contains("comes after another statement"), "{sql}: {error}");
            assert!(has_request(sql.as_bytes()));
            assert!(has_request(format!("{sql}\0").as_bytes()));
        }
        assert_eq!(request(&format!("SELECT $${one}$$; SELECT '; {}'", one.replace('\'', "''"))), None);
        for (sql, is_refused) in [(one.to_owned(), false), (format!("ROLLBACK; {one}"), true)] {
            let found = requested_faults(b'Q', format!("{sql}\0").as_bytes(), true);
            assert_eq!(found.is_some(), is_refused, "{sql}");
        }
        assert!(requested_faults(b'P', format!("\0{one}\0\0\0").as_bytes(), false).is_none());
    }
}
