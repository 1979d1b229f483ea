//! Generates cases: a database's sessions, how they end, and how the next client gets the database.

use std::fmt;

use super::parameters::Parameter;
use crate::common::random::Random;

/// Statements for sessions, one in each line. `{n}` stands for a small number.
const STATEMENTS: &str = include_str!("statements.sql");

/// How the next client gets a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    /// The lease ends with its last session, and one of several other names gets the database.
    NewName,
    /// The lease ends with its last session, and a session with the same name starts immediately.
    SameName,
    /// An HTTP request resets the database.
    Http,
    /// The next session's connection resets the database.
    Connection,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client sends a Terminate message.
    Terminate,
    /// The client closes the connection.
    Close,
    /// The client closes the connection in a transaction that has written something.
    InTransaction,
    /// The client closes the connection while it sends rows.
    InCopy,
    /// The client closes the connection while it reads rows.
    InResult,
    /// Another session terminates the session.
    Terminated,
    /// A timeout cancels a statement, and then the client cancels another statement.
    Cancelled,
    /// The server ends a session that is idle in a transaction.
    IdleTimeout,
    /// A signal kills the backend, and the server recovers.
    Killed,
    /// The session is still open when an HTTP request resets the database.
    LeftOpen,
}

/// A session's statements, parameters and end.
#[derive(Debug, Clone)]
pub(crate) struct SessionPlan {
    pub(crate) guest: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) statements: Vec<String>,
    pub(crate) end: End,
}

/// A database's sessions, and the handover to the next client.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) number: u32,
    pub(crate) handover: Handover,
    /// Whether the sessions are open concurrently.
    pub(crate) at_once: bool,
    pub(crate) sessions: Vec<SessionPlan>,
    /// Whether the next session has the same parameters as the last.
    pub(crate) same_parameters: bool,
}

impl Case {
    /// Returns the parameters for the session that examines the database afterwards.
    pub(crate) fn next_parameters(&self) -> Vec<Parameter> {
        let last = self.sessions.last().filter(|last| self.same_parameters && !last.guest);
        let parameters = last.map(|last| last.parameters.clone()).unwrap_or_default();
        parameters.into_iter().filter(Parameter::is_harmless).collect()
    }

    /// Whether the server crashes in this case.
    pub(crate) fn crashes(&self) -> bool {
        self.sessions.iter().any(|session| session.end == End::Killed)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.at_once { "at once" } else { "one after another" };
        writeln!(f, "case {}, {:?}, {} sessions {order}", self.number, self.handover, self.sessions.len())?;
        for session in &self.sessions {
            let user = if session.guest { "guest" } else { "postgres" };
            let options: Vec<_> = session.parameters.iter().map(Parameter::option).collect();
            writeln!(f, "  {user} {} ends by {:?}", options.join(" "), session.end)?;
            for statement in &session.statements {
                writeln!(f, "    {statement}")?;
            }
        }
        Ok(())
    }
}

/// Case generator. Each case depends only on the seed and its own number, so a single case can be repeated.
pub(crate) struct Generator {
    pub(crate) seed: u64,
    pub(crate) parameters: Vec<Parameter>,
    /// One case in this many cases contains a crash. 0 means no crashes.
    pub(crate) crash_every: u32,
}

impl Generator {
    pub(crate) fn case(&self, number: u32) -> Case {
        let mut random = Random::seeded(self.seed ^ (u64::from(number) << 32));
        random.number();
        let handover = match random.below(100) {
            0..40 => Handover::NewName,
            40..50 => Handover::SameName,
            50..75 => Handover::Http,
            _ => Handover::Connection,
        };
        let count = *random.choose(&[1, 1, 1, 2, 2, 3]);
        let mut sessions: Vec<_> = (0..count).map(|_| self.session(&mut random, handover)).collect();
        if self.crash_every > 0 && number % self.crash_every == self.crash_every / 2 {
            let last = sessions.len() - 1;
            sessions[last].end = End::Killed;
            sessions[last].guest = false;
            // A crash would lose changes that aren't in the WAL yet.
            sessions[0].statements.insert(0, "SET synchronous_commit = on".to_owned());
        }
        let (at_once, same_parameters) = (random.chance(50), random.chance(50));
        Case { number, handover, at_once, sessions, same_parameters }
    }

    fn session(&self, random: &mut Random, handover: Handover) -> SessionPlan {
        let guest = random.chance(8);
        let mut parameters = Vec::new();
        if !guest && random.chance(25) {
            parameters = (0..=random.below(2)).map(|_| random.choose(&self.parameters).clone()).collect();
        }
        let statements = (0..random.below(8)).map(|_| statement(random, 4)).collect();
        let end = match random.below(100) {
            0..52 => End::Terminate,
            52..67 => End::Close,
            67..74 => End::InTransaction,
            74..79 => End::InCopy,
            79..84 => End::InResult,
            84..88 => End::Terminated,
            88..93 => End::Cancelled,
            93..95 => End::IdleTimeout,
            _ if handover == Handover::Http => End::LeftOpen,
            _ => End::Terminate,
        };
        SessionPlan { guest, parameters, statements, end }
    }
}

/// Selects a statement as in test suites, or an unusual statement in `rare` percent of all calls.
pub(crate) fn statement(random: &mut Random, rare: usize) -> String {
    let wanted = if random.chance(rare) { "rare" } else { "common" };
    let lines: Vec<&str> =
        statements().into_iter().filter(|(kind, _)| *kind == wanted).map(|(_, line)| line).collect();
    let n = random.below(11) + 1;
    random.choose(&lines).replace("{n}", &n.to_string())
}

/// Returns the queries in a line, which `;; ` separates. The client sends each query after the response
/// to the previous query.
pub(crate) fn queries(line: &str) -> impl Iterator<Item = &str> {
    line.split(";; ")
}

/// Returns all statements with their section's kind: "common" or "rare".
pub(crate) fn statements() -> Vec<(&'static str, &'static str)> {
    let mut kind = "";
    let mut all = Vec::new();
    for line in STATEMENTS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("-- ").and_then(|heading| heading.split_once(':')) {
            Some((heading, _)) => kind = heading,
            None => all.push((kind, line)),
        }
    }
    all
}
