//! Tracks a session's statements: their texts, and when they start and end. Reports and the live page show
//! these statements to the user.
//!
//! The server processes one message at a time. A statement therefore starts when the client sends it or, if
//! that is later, when the previous statement ends. It ends with its CommandComplete, or with the
//! ReadyForQuery after that. A commit caused by a Sync thus counts as part of the statement before the Sync.
//! The tracker stores only the first part of each statement, unless its caller wants whole statements with
//! their values. Source: the manual's "Message Flow", 13 to 18.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::frame::{FrameDecoder, FramePrefix, split_zero};
use crate::{ErrorResponse, SentStatement};

/// How many bytes of a statement the tracker stores, at most. `pg_stat_activity` shows the same number.
const TEXT: usize = 1023;
/// How many bytes of a name or an error the tracker stores, at most.
const NAME: usize = 256;
/// How many bytes of the bound values are in their digest, at most.
const VALUES: usize = 1024;
/// Length of the longest message that the tracker stores as a whole, in bytes.
const WHOLE: usize = 256 << 10;
/// How many bytes of a command tag the tracker reads, at most.
const TAG: usize = 64;
/// Maximum number of steps without a response, and of stored names. Real clients don't reach these limits.
const MOST: usize = 5000;

/// An event in a session.
#[derive(Debug, PartialEq)]
pub enum StatementEvent {
    /// The client has sent a request while the server was idle.
    Requested,
    /// A statement is complete.
    Completed(Completed),
}

/// A completed statement.
#[derive(Debug, PartialEq)]
pub struct Completed {
    /// The start of the statement's text. Empty if the tracker doesn't know the text.
    pub statement: Arc<str>,
    /// When the server started to execute the statement.
    pub begun: Instant,
    /// Whether the client ran the statement. False if the client only prepared it, or only fetched more rows
    /// of an earlier run.
    pub ran: bool,
    /// Digest of the bound values. `None` for a Query or for a statement in a batch.
    pub values: Option<u64>,
    /// The whole statement with its values, or with the first values of a batch. `None` if the tracker doesn't
    /// store them, or if the statement is too long or not UTF-8.
    pub sent: Option<Arc<SentStatement>>,
    /// Number of rows returned or changed, according to the command tags.
    pub rows: u64,
    /// The error, if the statement failed.
    pub error: Option<StatementError>,
    /// Whether a transaction is open, if the server is idle now, or `None` if the server is still working.
    pub rests: Option<bool>,
}

/// A failed statement's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementError {
    /// The error's SQLSTATE.
    pub sqlstate: String,
    /// The error's primary message, truncated if it is very long.
    pub message: String,
}

/// A client's request without a complete response so far.
#[derive(Debug)]
enum Step {
    /// A Query, which lasts until its ReadyForQuery.
    Query(Portal),
    /// An Execute of a portal, and the number of equal Executes in a row, each of which lasts until its
    /// CommandComplete.
    Execute(Execution, usize),
    /// A Sync, which lasts until its ReadyForQuery. The text is that of the statement the client prepared
    /// last.
    Sync(Arc<str>),
}

/// The statement and values of a portal.
#[derive(Debug, Clone, Default)]
struct Portal {
    statement: Arc<str>,
    values: Option<u64>,
    sent: Option<Arc<SentStatement>>,
}

/// A prepared statement, and the number of times the client has bound it.
#[derive(Debug, Clone, Default)]
struct Prepared {
    statement: Arc<str>,
    sent: Option<Arc<SentStatement>>,
    runs: u64,
}

/// The portal of an Execute, and whether the client bound a portal just before it.
#[derive(Debug, Clone)]
struct Execution {
    portal: Portal,
    bound: bool,
}

/// Tracks both directions of a session.
#[derive(Debug, Default)]
pub struct StatementTracker {
    client: FrameDecoder,
    server: FrameDecoder,
    /// Whether to store whole statements with their values.
    keeps_whole: bool,
    /// Prepared statements keyed by name.
    prepared: HashMap<Vec<u8>, Prepared>,
    portals: HashMap<Vec<u8>, Portal>,
    /// Whether the client has bound a portal that it hasn't executed yet.
    bound: bool,
    steps: VecDeque<Step>,
    /// The statement or portal that the client prepared, bound or executed last.
    last: Portal,
    /// The last execution, while its commit is still outstanding.
    executed: Option<Execution>,
    /// Number of rows of the current statement.
    rows: u64,
    error: Option<StatementError>,
    /// When the server started its current work, or `None` while the server is idle.
    since: Option<Instant>,
    /// Whether the client has sent messages without a Sync so far.
    unsynchronized: bool,
}

impl StatementTracker {
    /// Creates a tracker that also stores whole statements with their values.
    #[must_use]
    pub fn with_values() -> Self {
        Self { keeps_whole: true, ..Self::default() }
    }

    /// Returns true if the tracker can no longer follow the session, because it doesn't know where the next
    /// frame starts or because the server owes too many responses.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.client.is_malformed() || self.server.is_malformed() || self.steps.len() > MOST
    }

    /// Processes bytes that the client sent at `now`.
    pub fn observe_client(&mut self, bytes: &[u8], now: Instant, emit: &mut dyn FnMut(StatementEvent)) {
        let mut client = std::mem::take(&mut self.client);
        let keeps_whole = self.keeps_whole;
        let wanted = |tag| match tag {
            b'Q' | b'P' | b'B' if keeps_whole => WHOLE,
            b'Q' => TEXT,
            b'P' => NAME + TEXT,
            b'B' => 2 * NAME + VALUES,
            b'E' | b'C' => NAME,
            _ => 0,
        };
        client.decode(bytes, wanted, |FramePrefix { tag, length, body }| {
            let body = &body[..body.len().min(wanted(tag))];
            self.handle_message(FramePrefix { tag, length, body }, now, emit);
        });
        self.client = client;
    }

    fn handle_message(&mut self, frame: FramePrefix<'_>, now: Instant, emit: &mut dyn FnMut(StatementEvent)) {
        let FramePrefix { tag, length, body } = frame;
        match tag {
            b'd' | b'H' | b'X' => return,
            b'c' | b'f' => return self.end_copy(),
            _ => {}
        }
        if self.since.is_none() {
            self.since = Some(now);
            emit(StatementEvent::Requested);
        }
        self.unsynchronized = !matches!(tag, b'Q' | b'F' | b'S');
        let (first, rest) = split_zero(body);
        let is_whole = self.keeps_whole && body.len() == length;
        match tag {
            b'Q' => {
                let sent = is_whole.then(|| SentStatement::query(first)).flatten().map(Arc::new);
                let statement = shown(first, sent.as_deref());
                self.steps.push_back(Step::Query(Portal { statement, values: None, sent }));
            }
            b'F' => {
                let statement = "(a function is called)".into();
                self.steps.push_back(Step::Query(Portal { statement, ..Portal::default() }));
            }
            b'S' => self.steps.push_back(Step::Sync(Arc::clone(&self.last.statement))),
            b'P' => {
                let (sql, types) = split_zero(rest);
                let sent = is_whole.then(|| SentStatement::prepared(sql, types)).flatten().map(Arc::new);
                let statement = shown(sql, sent.as_deref());
                self.last = Portal { statement: Arc::clone(&statement), ..Portal::default() };
                remember(&mut self.prepared, first, &Prepared { statement, sent, runs: 0 });
            }
            b'B' => {
                let (name, values) = split_zero(rest);
                self.last = self.handle_bind(name, values, is_whole);
                remember(&mut self.portals, first, &self.last);
                self.bound = true;
            }
            b'E' => self.handle_execute(first),
            b'C' if body.first() == Some(&b'S') => drop(self.prepared.remove(&first[1..])),
            b'C' if body.first() == Some(&b'P') => drop(self.portals.remove(&first[1..])),
            _ => {}
        }
    }

    /// Returns the portal for a Bind of the prepared statement `name`.
    fn handle_bind(&mut self, name: &[u8], values: &[u8], is_whole: bool) -> Portal {
        let digest = Some(digest(values));
        let Some(Prepared { statement, sent, runs }) = self.prepared.get_mut(name) else {
            return Portal { values: digest, ..Portal::default() };
        };
        *runs += u64::from(!name.is_empty());
        let sent = sent.as_ref().filter(|_| is_whole).map(|sent| Arc::new(sent.bound(values, *runs)));
        Portal { statement: Arc::clone(statement), values: digest, sent }
    }

    fn handle_execute(&mut self, portal: &[u8]) {
        self.last = self.portals.get(portal).unwrap_or(&self.last).clone();
        let bound = std::mem::take(&mut self.bound);
        match self.steps.back_mut() {
            // Count equal Executes, so that even a batch of a million rows needs only one entry.
            Some(Step::Execute(Execution { portal, bound: true }, count))
                if bound && Arc::ptr_eq(&portal.statement, &self.last.statement) =>
            {
                *count += 1;
                portal.values = None;
            }
            _ => self.steps.push_back(Step::Execute(Execution { portal: self.last.clone(), bound }, 1)),
        }
    }

    /// Ends the COPY of the client's last statement. The server never responds to messages it received during
    /// the COPY, not even to a Sync, so forget them.
    fn end_copy(&mut self) {
        let copy = self.steps.iter().rposition(|step| !matches!(step, Step::Sync(_)));
        if let Some(at) = copy.filter(|at| matches!(self.steps[*at], Step::Execute(..))) {
            self.steps.truncate(at + 1);
        }
    }

    /// Processes bytes that the server sent at `now`.
    pub fn observe_server(&mut self, bytes: &[u8], now: Instant, emit: &mut dyn FnMut(StatementEvent)) {
        let mut server = std::mem::take(&mut self.server);
        let wanted = |tag| match tag {
            b'Z' => 1,
            b'E' => 2 * NAME,
            b'C' => TAG,
            _ => 0,
        };
        server.decode(bytes, wanted, |FramePrefix { tag, body, .. }| match tag {
            b'C' | b'I' | b's' => {
                self.rows += rows(&body[..body.len().min(wanted(tag))]);
                self.handle_complete(now, emit);
            }
            b'E' => self.handle_error(&body[..body.len().min(wanted(tag))]),
            b'Z' => self.handle_ready(!body.starts_with(b"I"), now, emit),
            _ => {}
        });
        self.server = server;
    }

    fn handle_complete(&mut self, now: Instant, emit: &mut dyn FnMut(StatementEvent)) {
        let Some(Step::Execute(execution, count)) = self.steps.front_mut() else { return };
        let (execution, last) = (execution.clone(), *count == 1);
        *count -= 1;
        if last {
            self.steps.pop_front();
        }
        if let (true, Some(Step::Sync(_))) = (last, self.steps.front()) {
            self.executed = Some(execution);
        } else {
            let rests = self.steps.is_empty().then_some(true);
            self.emit_completed(execution, rests, now, emit);
        }
    }

    /// Handles an error. The server then skips all messages until the next Sync.
    fn handle_error(&mut self, body: &[u8]) {
        let ErrorResponse { sqlstate, message, .. } = ErrorResponse::read(body);
        self.error = Some(StatementError { sqlstate: sqlstate.into_owned(), message: message.into_owned() });
        while let Some(Step::Execute(..)) = self.steps.front() {
            if let (Some(Step::Execute(execution, _)), None) = (self.steps.pop_front(), &self.executed) {
                self.executed = Some(execution);
            }
        }
    }

    fn handle_ready(&mut self, in_transaction: bool, now: Instant, emit: &mut dyn FnMut(StatementEvent)) {
        while let Some(Step::Execute(..)) = self.steps.front() {
            self.steps.pop_front();
        }
        let prepared =
            |statement| Execution { portal: Portal { statement, ..Portal::default() }, bound: false };
        let execution = match (self.steps.pop_front(), self.executed.take()) {
            (Some(Step::Query(portal)), _) => Execution { portal, bound: true },
            (_, Some(executed)) => executed,
            (Some(Step::Sync(statement)), None) => prepared(statement),
            (_, None) => prepared(Arc::clone(&self.last.statement)),
        };
        let rests = (self.steps.is_empty() && !self.unsynchronized).then_some(in_transaction);
        self.emit_completed(execution, rests, now, emit);
    }

    fn emit_completed(
        &mut self,
        execution: Execution,
        rests: Option<bool>,
        now: Instant,
        emit: &mut dyn FnMut(StatementEvent),
    ) {
        let Some(begun) = self.since else { return };
        self.since = rests.is_none().then_some(now);
        let Execution { portal: Portal { statement, values, sent }, bound: ran } = execution;
        let (error, rows) = (self.error.take(), std::mem::take(&mut self.rows));
        emit(StatementEvent::Completed(Completed {
            statement,
            begun,
            ran,
            values,
            sent,
            rows,
            error,
            rests,
        }));
    }
}

/// Returns the start of a statement. A short one shares its text with `sent`.
fn shown(bytes: &[u8], sent: Option<&SentStatement>) -> Arc<str> {
    match sent {
        Some(sent) if bytes.len() <= TEXT => Arc::clone(&sent.text),
        _ => text(bytes),
    }
}

/// Returns the start of a statement, without an incomplete character at the end.
fn text(bytes: &[u8]) -> Arc<str> {
    let bytes = &bytes[..bytes.len().min(TEXT)];
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into()
        }
        Err(_) => String::from_utf8_lossy(bytes).into(),
    }
}

fn remember<T: Clone>(names: &mut HashMap<Vec<u8>, T>, name: &[u8], meaning: &T) {
    if names.len() >= MOST {
        names.clear();
    }
    names.insert(name.to_vec(), meaning.clone());
}

/// Returns a digest of the first [`VALUES`] bytes, valid only within this process.
fn digest(values: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&values[..values.len().min(VALUES)]);
    hasher.finish()
}

/// Returns the number of rows in a command tag. This is the tag's last word, if that is a number. Source: the
/// manual's "Message Formats", CommandComplete.
fn rows(tag: &[u8]) -> u64 {
    let tag = std::str::from_utf8(split_zero(tag).0).unwrap_or_default();
    tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], body].concat()
    }

    /// Encodes messages from a short notation. Each message consists of a tag, optionally followed by a colon
    /// and the message's text. Commas separate the parts of the text.
    fn messages(words: &str) -> Vec<u8> {
        let one = |word: &str| {
            let (tag, body) = word.split_once(':').unwrap_or((word, ""));
            let mut body = body.replace(',', "\0").replace('_', " ").into_bytes();
            match tag.as_bytes()[0] {
                b'Z' => {}
                b'E' if !body.is_empty() => body.extend_from_slice(b"\0\0"),
                _ => body.push(0),
            }
            message(tag.as_bytes()[0], &body)
        };
        words.split(' ').filter(|word| !word.is_empty()).flat_map(one).collect()
    }

    /// Plays a dialogue, delivering bytes in chunks. Calls `emit` for each event with the number of the turn.
    fn play(talk: &str, chunk: usize, begin: Instant, mut emit: impl FnMut(usize, StatementEvent)) {
        let mut follow = StatementTracker::default();
        for (turn, words) in talk.split_inclusive(['>', '<']).skip(1).enumerate() {
            let from_client = talk.split_inclusive(['>', '<']).nth(turn).unwrap().ends_with('>');
            let now = begin + Duration::from_millis(turn as u64);
            let mut emit = |event| emit(turn, event);
            for part in messages(words.trim_end_matches(['>', '<'])).chunks(chunk) {
                if from_client {
                    follow.observe_client(part, now, &mut emit);
                } else {
                    follow.observe_server(part, now, &mut emit);
                }
            }
        }
    }

    /// Returns a dialogue's events. In the dialogue, `>` precedes the client's turns and `<` the server's.
    /// Each turn takes one millisecond. An event has the format `STATEMENT FROM..TO`, with the prefix `-` if
    /// the statement wasn't run. The error follows, then `idle` or `open` if the server is idle.
    fn events_in(talk: &str, chunk: usize) -> Vec<String> {
        let (begin, mut events) = (Instant::now(), Vec::new());
        play(talk, chunk, begin, |turn, event| match event {
            StatementEvent::Requested => events.push(format!("asked {turn}")),
            StatementEvent::Completed(Completed { statement, begun, ran, error, rests, .. }) => {
                let (ran, from) = (if ran { "" } else { "-" }, (begun - begin).as_millis());
                let error = error.map_or_else(String::new, |error| format!(" {}", error.sqlstate));
                let rests = rests.map_or("", |open| if open { " open" } else { " idle" });
                events.push(format!("{ran}{statement} {from}..{turn}{error}{rests}"));
            }
        });
        events
    }

    fn events(talk: &str) -> Vec<String> {
        events_in(talk, usize::MAX)
    }

    /// Returns each statement of a dialogue, a number for its bound values (in order of first appearance),
    /// and its number of rows.
    fn runs(talk: &str) -> Vec<(String, Option<usize>, u64)> {
        let (mut seen, mut runs) = (Vec::new(), Vec::new());
        play(talk, 3, Instant::now(), |_, event| {
            if let StatementEvent::Completed(Completed { statement, values, rows, .. }) = event {
                let number = values.map(|values| {
                    let at = seen.iter().position(|one| *one == values);
                    at.unwrap_or_else(|| {
                        seen.push(values);
                        seen.len() - 1
                    })
                });
                runs.push((statement.as_ref().to_owned(), number, rows));
            }
        });
        runs
    }

    #[test]
    fn runs_differ_by_values_and_rows() {
        let run = |values: &str, tag: &str| format!("> B:,s,{values} E:, S < 2 C:{tag} Z:I");
        let talk =
            ["> P:s,SELECT S < 1 Z:I", &run("1", "SELECT_3"), &run("2", "SELECT_1"), &run("1", "SELECT_3")];
        let select = |values, rows| ("SELECT".to_owned(), values, rows);
        let runs_of = runs(&talk.join(" "));
        assert_eq!(runs_of[1..], [select(Some(0), 3), select(Some(1), 1), select(Some(0), 3)]);
        // Batched runs cost no round trip each, so their values aren't recorded.
        let batch = "> P:s,INSERT B:,s,1 E:, B:,s,2 E:, S < 1 2 C:INSERT_0_1 2 C:INSERT_0_1 Z:I";
        assert_eq!(runs(batch), [("INSERT".to_owned(), None, 1), ("INSERT".to_owned(), None, 1)]);
        let text = ("a;_b".replace('_', " "), None, 7);
        assert_eq!(runs("> Q:a;_b < T D C:SELECT_5 C:DELETE_2 Z:I"), [text]);
        assert_eq!(rows(b"MOVE 18446744073709551616\0"), 0);
    }

    #[test]
    fn a_query_lasts_until_the_server_is_ready() {
        assert_eq!(
            events("> Q:BEGIN < C:BEGIN Z:T > Q:a;_b < T D C:a C:b Z:I"),
            ["asked 0", "BEGIN 0..1 open", "asked 2", "a; b 2..3 idle"]
        );
    }

    #[test]
    fn a_syncs_commit_belongs_to_its_statement() {
        assert_eq!(
            events("> P:,INSERT B:, D:P E:,0000 S < 1 2 n C:INSERT < Z:I"),
            ["asked 0", "INSERT 0..2 idle"]
        );
    }

    #[test]
    fn prepared_statements_run_by_name() {
        let talk = "> P:one,SELECT D:S S < 1 t n Z:I > B:p,one E:p,0 S < 2 C:S Z:I > C:Sone S < 3 Z:I";
        assert_eq!(
            events(talk),
            ["asked 0", "-SELECT 0..1 idle", "asked 2", "SELECT 2..3 idle", "asked 4", "-SELECT 4..5 idle"]
        );
    }

    #[test]
    fn pipelined_statements_are_sequential() {
        let talk = "> P:,a B:, E:, P:,b B:, E:, S Q:c < 1 2 C:a < 1 2 C:b < Z:I < C:c Z:I";
        assert_eq!(events(talk), ["asked 0", "a 0..1", "b 1..3", "c 3..4 idle"]);
    }

    #[test]
    fn messages_after_an_error_are_skipped() {
        assert_eq!(
            events("> P:,a B:, E:, B:, E:, S < 1 2 E:C42P01,Mno < Z:E > Q:ROLLBACK < C:R Z:I"),
            ["asked 0", "a 0..2 42P01 open", "asked 3", "ROLLBACK 3..4 idle"]
        );
        assert_eq!(events("> P:,wrong D:S S < E:C42601,Mno Z:I"), ["asked 0", "-wrong 0..1 42601 idle"]);
    }

    #[test]
    fn a_sync_during_copy_is_unanswered() {
        let talk = "> P:,COPY B:, E:, S < 1 2 G:x > d:xxxx c S < C:COPY Z:I > Q:b < C:b Z:I";
        assert_eq!(events(talk), ["asked 0", "COPY 0..3 idle", "asked 4", "b 4..5 idle"]);
        // The client sends the second statement's data before the server responds to the first statement.
        let talk = "> P:,a B:, E:, S Q:COPY d:xxxx c Q:b < 1 2 C:a Z:I < G:x C:COPY Z:I < C:b Z:I";
        assert_eq!(events(talk), ["asked 0", "a 0..1", "COPY 1..2", "b 2..3 idle"]);
    }

    #[test]
    fn rows_fetched_in_parts_are_one_run() {
        let talk = "> P:,a B:, E:, H < 1 2 s > E:, S < C:a Z:I";
        assert_eq!(events(talk), ["asked 0", "a 0..1 open", "asked 2", "-a 2..3 idle"]);
        assert_eq!(events("> P:,a B:, E:, S < 1 2 s Z:I"), ["asked 0", "a 0..1 idle"], "no more was wanted");
    }

    #[test]
    fn a_batch_may_have_any_length() {
        let (mut follow, mut runs, now) = (StatementTracker::default(), 0, Instant::now());
        let rows = messages("B:, E:,").repeat(3 * MOST);
        follow.observe_client(&messages("P:,INSERT"), now, &mut |_| ());
        follow.observe_client(&rows, now, &mut |_| ());
        follow.observe_client(&messages("S"), now, &mut |_| ());
        assert!(!follow.is_lost());
        let answers = [messages("C:INSERT").repeat(3 * MOST), messages("Z:I")].concat();
        follow.observe_server(&answers, now, &mut |event| match event {
            StatementEvent::Completed(completed) => runs += usize::from(completed.ran),
            StatementEvent::Requested => {}
        });
        assert_eq!(runs, 3 * MOST);
    }

    #[test]
    fn long_statements_are_cut_at_a_letter() {
        assert_eq!(text("ä".repeat(600).as_bytes()).len(), TEXT - 1);
        assert_eq!(&*text(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn a_length_that_cannot_be_ends_it() {
        let mut follow = StatementTracker::default();
        follow.observe_client(b"Q\0\0\0\x03", Instant::now(), &mut |_| ());
        assert!(follow.is_lost());
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_tell_the_same(chunk in 1_usize..40) {
            let talk = "> P:,INSERT_INTO_t B:, E:, S < 1 2 E:C23505,Mdouble_key Z:I > Q:SELECT_1 < T D C:S Z:I";
            prop_assert_eq!(events_in(talk, chunk), events(talk));
        }

        #[test]
        fn no_bytes_are_too_strange(
            client in prop::collection::vec(any::<u8>(), 0..200),
            server in prop::collection::vec(any::<u8>(), 0..200),
            tags in prop::collection::vec(prop::sample::select(&b"QPBESDCZcfI"[..]), 0..40),
        ) {
            let (mut follow, now) = (StatementTracker::default(), Instant::now());
            for (at, tag) in tags.iter().enumerate() {
                match at % 2 {
                    0 => follow.observe_client(&message(*tag, &client), now, &mut |_| ()),
                    _ => follow.observe_server(&message(*tag, &server), now, &mut |_| ()),
                }
            }
            follow.observe_client(&client, now, &mut |_| ());
            follow.observe_server(&server, now, &mut |_| ());
        }
    }
}
