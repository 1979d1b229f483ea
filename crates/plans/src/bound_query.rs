//! Runs queries with parameter values through the extended protocol.

use pgwire::{Frame, columns, encode};
use server::{AdminConnection, SessionError};

use crate::BoundValue;

/// Runs one statement with values for its parameters, and returns the first column of all rows. NULL is an empty text.
///
/// # Errors
///
/// Returns the errors of [`AdminConnection::exchange`].
pub fn run_bound(
    connection: &mut AdminConnection,
    sql: &str,
    parameters: &[BoundValue],
) -> Result<Vec<String>, SessionError> {
    let mut lines = Vec::new();
    connection.exchange(&messages(sql, parameters), &mut |frame: Frame<'_>| {
        if frame.tag == b'D' {
            let first = columns(frame.body).next().flatten().unwrap_or_default();
            lines.push(String::from_utf8_lossy(first).into_owned());
        }
    })?;
    Ok(lines)
}

#[allow(clippy::cast_possible_truncation)]
pub(crate) fn parse_message(sql: &str, parameters: &[BoundValue]) -> Vec<u8> {
    // A zero byte would end the text early and make the message malformed, so replace it.
    let sql = sql.replace('\0', "\u{fffd}");
    let count = (parameters.len() as u16).to_be_bytes();
    let mut body = [b"\0", sql.as_bytes(), b"\0", &count].concat();
    body.extend(parameters.iter().flat_map(|parameter| parameter.type_oid.to_be_bytes()));
    encode(b'P', &body)
}

/// Encodes Parse, Bind, Execute and Sync. Types and formats of the values are those that the client used.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
fn messages(sql: &str, parameters: &[BoundValue]) -> Vec<u8> {
    let count = (parameters.len() as u16).to_be_bytes();
    let mut bind = [b"\0\0", &count[..]].concat();
    bind.extend(parameters.iter().flat_map(|parameter| parameter.format.to_be_bytes()));
    bind.extend(count);
    for parameter in parameters {
        match &parameter.value {
            None => bind.extend((-1_i32).to_be_bytes()),
            Some(value) => {
                bind.extend((value.len() as i32).to_be_bytes());
                bind.extend(value);
            }
        }
    }
    bind.extend([0, 0]);
    let parse = parse_message(sql, parameters);
    [parse, encode(b'B', &bind), encode(b'E', b"\0\0\0\0\0"), encode(b'S', b"")].concat()
}
