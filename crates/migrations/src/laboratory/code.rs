//! Reads procedural code that a statement runs: the body of a DO block, and the functions that it calls.
//!
//! The server doesn't report two things that happen inside a block: a `lock_timeout` that ends with the block, and the
//! locks of a part that an EXCEPTION clause rolls back.

use std::time::Duration;

use pgwire::{Token, begins_with};

use super::error::LaboratoryError;
use super::questions::{duration, functions_of};
use super::repetition::Repetition;
use super::session::RepeatedSession;
use crate::sql_text::{block_body, tokens};

/// Keywords of statements whose procedural code the laboratory reads.
const CALLERS: [&str; 4] = ["do", "call", "select", "with"];
/// Keywords of statements that may wait for a lock.
const LOCKING: [&[u8]; 14] = [
    b"alter",
    b"create",
    b"drop",
    b"lock",
    b"truncate",
    b"update",
    b"delete",
    b"insert",
    b"perform",
    b"execute",
    b"refresh",
    b"reindex",
    b"cluster",
    b"comment",
];

/// A value of `lock_timeout`. `None` means that it is off.
type Timeout = Option<Duration>;

/// Procedural code that a statement runs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Code {
    /// Body of the DO block. `None` if the statement isn't one.
    block: Option<String>,
    functions: Vec<Function>,
}

/// A function that a statement may call, directly or in another function.
#[derive(Debug, PartialEq)]
pub(super) struct Function {
    body: String,
    /// The function's own `lock_timeout`. `None` if its definition doesn't set one.
    timeout: Option<Timeout>,
}

impl Repetition<'_> {
    /// Reads the code that a statement runs. Empty for other statements than
    /// [`CALLERS`].
    pub(super) fn code_of(&mut self, open: &mut RepeatedSession, sql: &str) -> Result<Code, LaboratoryError> {
        if !begins_with(sql, &CALLERS) {
            return Ok(Code::default());
        }
        let block = block_body(sql);
        let mut names: Vec<_> = [Some(sql), block.as_deref()]
            .into_iter()
            .flatten()
            .flat_map(|text| tokens(text).iter().filter_map(Token::name).collect::<Vec<_>>())
            .collect();
        names.sort_unstable();
        names.dedup();
        let query = functions_of(&names, open.has_functions);
        let functions = self.answer(open, &query)?.into_iter().filter_map(|row| {
            let mut cells = row.into_iter();
            let body = cells.next()??;
            let timeout = cells.next().flatten().map(|setting| duration(&setting));
            Some(Function { body, timeout })
        });
        Ok(Code { block, functions: functions.collect() })
    }
}

impl Code {
    /// Returns the text of all code.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.block.as_deref().into_iter().chain(self.functions.iter().map(|function| function.body.as_str()))
    }

    /// Returns true if the code may roll a part of its work back. Code that never waits for a lock counts as none,
    /// because the laboratory's own locks would change its result.
    pub(super) fn may_roll_back(&self) -> bool {
        let has = |word: &[u8]| self.texts().any(|text| tokens(text).iter().any(|token| token.is_word(word)));
        has(b"exception") && !has(b"nowait")
    }

    /// Returns true if the code may run statements that it doesn't contain.
    pub(super) fn is_dynamic(&self) -> bool {
        self.texts().any(|text| tokens(text).iter().any(|token| token.is_word(b"execute")))
    }

    /// Returns the longest `lock_timeout` that applies while the code may wait for locks. `session` is the session's
    /// value before the statement.
    pub(super) fn lock_timeout(&self, session: Timeout) -> Timeout {
        let mut timeouts = Vec::new();
        if let Some(block) = &self.block {
            timeouts.extend(timeouts_in(block, session));
        }
        for function in &self.functions {
            match function.timeout {
                Some(own) => {
                    timeouts.push(own);
                    timeouts
                        .extend(assignments(&tokens(&function.body)).into_iter().map(|(_, timeout)| timeout));
                }
                None if !assignments(&tokens(&function.body)).is_empty() => {
                    timeouts.extend(timeouts_in(&function.body, session));
                }
                None => {}
            }
        }
        if timeouts.is_empty() { session } else { longest(&timeouts) }
    }
}

/// Returns the longest timeout, which is `None` if one of them is off.
fn longest(timeouts: &[Timeout]) -> Timeout {
    timeouts.iter().copied().collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Returns the timeouts that apply to the statements of a body. `outer` applies until the body sets another one.
fn timeouts_in(body: &str, outer: Timeout) -> Vec<Timeout> {
    let tokens = tokens(body);
    let assignments = assignments(&tokens);
    let first = assignments.first().map_or(tokens.len(), |(position, _)| *position);
    let is_locking = |token: &Token<'_>| LOCKING.iter().any(|word| token.is_word(word));
    let waits_before = tokens[..first].iter().any(is_locking);
    waits_before
        .then_some(outer)
        .into_iter()
        .chain(assignments.into_iter().map(|(_, timeout)| timeout))
        .collect()
}

/// Returns the values that a body assigns to `lock_timeout`, each with the position of its statement.
fn assignments(tokens: &[Token<'_>]) -> Vec<(usize, Timeout)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = |distance: usize, word: &[u8]| {
            at.checked_sub(distance)
                .and_then(|index| tokens.get(index))
                .is_some_and(|token| token.is_word(word))
        };
        let is_set = before(1, b"set") || before(2, b"set") && (before(1, b"local") || before(1, b"session"));
        let is_call = before(2, b"set_config") && text_of(token).eq_ignore_ascii_case("lock_timeout");
        if token.is_word(b"lock_timeout") && is_set || is_call {
            let value = tokens.get(at + 2).map(text_of).unwrap_or_default();
            // PERFORM begins the statement of a call.
            found.push((at.saturating_sub(3), duration(&value)));
        }
    }
    found
}

/// Returns a token's text without quotes.
fn text_of(token: &Token<'_>) -> String {
    String::from_utf8_lossy(token.text).trim_matches('\'').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_timeout_of_a_block_applies() {
        let seconds = |number| Some(Duration::from_secs(number));
        for (sql, session, expected) in [
            ("DO $$ BEGIN ALTER TABLE a ADD b int; END $$", 2, seconds(2)),
            ("DO $$ BEGIN SET LOCAL lock_timeout = '1s'; ALTER TABLE a ADD b int; END $$", 0, seconds(1)),
            ("DO $x$ BEGIN SET LOCAL lock_timeout TO 0; ALTER TABLE a ADD b int; END $x$", 2, None),
            ("DO $$ BEGIN LOCK a; SET LOCAL lock_timeout = '1s'; LOCK b; END $$", 0, None),
            ("DO $$ BEGIN LOCK a; SET lock_timeout = '1s'; LOCK b; END $$", 3, seconds(3)),
            ("DO 'BEGIN PERFORM set_config(''lock_timeout'', ''4s'', true); LOCK b; END'", 0, seconds(4)),
        ] {
            let code = Code { block: block_body(sql), functions: Vec::new() };
            let session = (session > 0).then(|| Duration::from_secs(session));
            assert_eq!(code.lock_timeout(session), expected, "{sql}");
        }
    }

    #[test]
    fn functions_have_their_own_timeout() {
        let seconds = |number| Some(Duration::from_secs(number));
        let function = |body: &str, timeout| Function { body: body.to_owned(), timeout };
        for (functions, expected) in [
            (vec![function("BEGIN LOCK a; END", None)], seconds(2)),
            (vec![function("BEGIN LOCK a; END", Some(None))], None),
            (vec![function("BEGIN LOCK a; END", Some(seconds(1)))], seconds(1)),
            (vec![function("BEGIN SET lock_timeout = 0; LOCK a; END", Some(seconds(1)))], None),
            (vec![function("BEGIN SET lock_timeout = '1s'; LOCK a; END", None)], seconds(1)),
        ] {
            let code = Code { block: None, functions };
            assert_eq!(code.lock_timeout(seconds(2)), expected, "{code:?}");
        }
    }
}
