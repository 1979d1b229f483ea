//! Generated cases: what sessions do with a database, how they end, and how the database is handed out next.

use std::fmt;

use super::parameters::Parameter;
use crate::common::random::Random;

/// What sessions do: one statement a line; `{n}` stands for a small number.
const STATEMENTS: &str = include_str!("statements.sql");

/// How the next holder gets a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    /// Its lease ends with the last session; another name gets it sooner or later.
    NewName,
    /// Its lease ends with the last session, and a session with the same name begins at once.
    SameName,
    /// It is reset over HTTP.
    Http,
    /// It is reset by the connection of the next session.
    Connection,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With a Terminate message.
    Terminate,
    /// The client closes the connection.
    Close,
    /// … in a transaction that has written.
    InTransaction,
    /// … while it sends rows.
    InCopy,
    /// … while it reads rows.
    InResult,
    /// Another session terminates it.
    Terminated,
    /// A statement is cancelled by its timeout, and then by its client.
    Cancelled,
    /// The server ends it because it is idle in a transaction.
    IdleTimeout,
    /// Its process is killed, and the server recovers.
    Killed,
    /// It is still open when the database is reset over HTTP.
    LeftOpen,
}

/// What one session does.
#[derive(Debug, Clone)]
pub(crate) struct SessionPlan {
    pub(crate) guest: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) statements: Vec<String>,
    pub(crate) end: End,
}

/// What happens to one database.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) number: u32,
    pub(crate) handover: Handover,
    /// Whether the sessions are open at the same time.
    pub(crate) at_once: bool,
    pub(crate) sessions: Vec<SessionPlan>,
    /// Whether the next session has the parameters of the last one.
    pub(crate) same_parameters: bool,
}

impl Case {
    /// The parameters of the session that looks at the database afterwards.
    pub(crate) fn next_parameters(&self) -> Vec<Parameter> {
        let last = self.sessions.last().filter(|last| self.same_parameters && !last.guest);
        let parameters = last.map(|last| last.parameters.clone()).unwrap_or_default();
        parameters.into_iter().filter(Parameter::is_harmless).collect()
    }

    /// Whether the server crashes in it.
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

/// Makes cases from a seed: each from its own number, so that one can be played alone.
pub(crate) struct Generator {
    pub(crate) seed: u64,
    pub(crate) parameters: Vec<Parameter>,
    /// One case of so many has a crash.
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
            // What was not written when the server crashed is not there in any case.
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

/// Mostly what test suites do, and in `rare` of 100 cases something else.
pub(crate) fn statement(random: &mut Random, rare: usize) -> String {
    let wanted = if random.chance(rare) { "rare" } else { "common" };
    let lines: Vec<&str> =
        statements().into_iter().filter(|(kind, _)| *kind == wanted).map(|(_, line)| line).collect();
    let n = random.below(11) + 1;
    random.choose(&lines).replace("{n}", &n.to_string())
}

/// The query strings of a line, which `;; ` separates: each is sent when the one before is answered.
pub(crate) fn queries(line: &str) -> impl Iterator<Item = &str> {
    line.split(";; ")
}

/// All statements with the kind of their section: "common" or "rare".
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
