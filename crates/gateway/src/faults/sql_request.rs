//! Requests for faults in SQL: `SET pgfresh.fault = '{"error": "40001", "at": "commit"}'`.
//!
//! The server accepts this statement as the setting of an unknown extension, so that it answers as to any SET.

use contract::FaultRequest;
use pgwire::{SqlLexer, Token, TokenKind, encode, query, split_zero};

use super::fault::{Fault, FaultError};

/// Statement that takes the place of a wrong request, because it fails in the same way.
const FAILING: &[u8] = b"SET client_min_messages = 'pgfresh.fault'";
/// Advice for a request that is no JSON.
const JSON_HINT: &str = "Write it as in '{\"error\": \"40001\", \"at\": \"commit\"}'.";

/// Returns true if a statement whose first word is SET requests a fault. `lexer` has read this word.
pub(crate) fn sets_a_fault(mut lexer: SqlLexer<'_>) -> bool {
    read_name(&mut lexer, |_| true).is_some()
}

/// Returns the fault that a Query or Parse message requests, or what is wrong with the request. Returns `None` for any
/// other message.
pub(super) fn requested_fault(tag: u8, body: &[u8]) -> Option<Result<Fault, FaultError>> {
    // A literal with a prefix is refused, so that it does not matter how the server reads a backslash.
    let mut lexer = SqlLexer::new(statement(tag, body)?, true);
    if !lexer.token()?.is_word(b"set") {
        return None;
    }
    read_name(&mut lexer, |sign| sign.is_sign(b'=') || sign.is_word(b"to"))?;
    let value = lexer.token();
    let text = value.filter(|value| value.kind == TokenKind::Text).and_then(|value| literal(value.text));
    Some(parse(text.as_deref()))
}

/// Returns true if a message of the client requests a fault.
pub(crate) fn requests_fault(tag: u8, body: &[u8]) -> bool {
    statement(tag, body).is_some_and(begins_with_request)
}

/// Returns true if a statement requests a fault.
pub(super) fn is_request(sql: &str) -> bool {
    begins_with_request(sql.as_bytes())
}

fn begins_with_request(sql: &[u8]) -> bool {
    let mut lexer = SqlLexer::new(sql, true);
    lexer.token().is_some_and(|verb| verb.is_word(b"set")) && sets_a_fault(lexer)
}

fn statement(tag: u8, body: &[u8]) -> Option<&[u8]> {
    match tag {
        b'Q' => Some(split_zero(body).0),
        b'P' => Some(split_zero(split_zero(body).1).0),
        _ => None,
    }
}

/// Returns a message that the server refuses, in place of a Query or Parse message.
pub(super) fn failing_message(tag: u8, body: &[u8]) -> Vec<u8> {
    if tag == b'Q' {
        return query(FAILING);
    }
    let (name, rest) = split_zero(body);
    encode(b'P', &[name, b"\0", FAILING, b"\0", split_zero(rest).1].concat())
}

/// Reads `[SESSION | LOCAL] pgfresh.fault` and a sign. Returns `None` for anything else.
fn read_name<'a>(lexer: &mut SqlLexer<'a>, is_sign: impl Fn(&Token<'a>) -> bool) -> Option<()> {
    let mut first = lexer.token()?;
    if first.is_word(b"session") || first.is_word(b"local") {
        first = lexer.token()?;
    }
    let is_name = first.is_word(b"pgfresh")
        && lexer.token()?.is_sign(b'.')
        && lexer.token()?.is_word(b"fault")
        && is_sign(&lexer.token()?);
    is_name.then_some(())
}

/// Returns the text of a literal without a prefix. Any other literal is `None`.
fn literal(token: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(token).ok()?;
    if let Some(quoted) = text.strip_prefix('\'') {
        return Some(quoted.strip_suffix('\'')?.replace("''", "'"));
    }
    let delimiter = &text[..=text.strip_prefix('$')?.find('$')? + 1];
    text.strip_prefix(delimiter)?.strip_suffix(delimiter).map(str::to_owned)
}

fn parse(text: Option<&str>) -> Result<Fault, FaultError> {
    let wrong = |why: String| FaultError {
        what: format!("pgfresh.fault is no JSON of a fault: {why}"),
        hint: JSON_HINT.to_owned(),
    };
    let text = text.ok_or_else(|| wrong("it is no plain string".to_owned()))?;
    let request: FaultRequest = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    request.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sql: &str) -> Option<Result<String, String>> {
        let body = [sql.as_bytes(), b"\0"].concat();
        let found = requested_fault(b'Q', &body)?;
        Some(found.map(|fault| fault.words()).map_err(|error| error.what))
    }

    #[test]
    fn fault_is_read_from_each_form_of_set() {
        let words = Some(Ok("40001 at commit".to_owned()));
        for sql in [
            r#"SET pgfresh.fault = '{"error": "40001", "at": "commit"}'"#,
            r#"set session PGFRESH.fault to '{"error":"40001","at":"commit"}';"#,
            r#"/* x */ SET LOCAL pgfresh . fault=$j${"error": "40001", "at": "commit"}$j$"#,
        ] {
            assert_eq!(request(sql), words, "{sql}");
        }
        for sql in
            ["SET pgfresh.faults = ''", "SET search_path = x", "SHOW pgfresh.fault", "", "SET pgfresh.fault"]
        {
            assert_eq!(request(sql), None, "{sql}");
        }
    }

    #[test]
    fn wrong_request_has_a_reason() {
        for (value, reason) in [
            ("''", "pgfresh.fault is no JSON of a fault: EOF while parsing"),
            ("DEFAULT", "pgfresh.fault is no JSON of a fault: it is no plain string"),
            (r#"'{"eror": "40001"}'"#, "pgfresh.fault is no JSON of a fault: unknown field `eror`"),
            (r#"'{"error": "00000"}'"#, "\"00000\" is no SQLSTATE of an error"),
        ] {
            let error = request(&format!("SET pgfresh.fault = {value}")).unwrap().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn failing_parse_keeps_its_name_and_types() {
        let message = failing_message(b'P', b"name\0SET pgfresh.fault = ''\0\0\x01\0\0\0\x17");
        let expected = [&b"name\0"[..], FAILING, b"\0\0\x01\0\0\0\x17"].concat();
        assert_eq!(message, encode(b'P', &expected));
    }
}
