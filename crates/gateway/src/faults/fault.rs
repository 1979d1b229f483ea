//! One fault: what happens, at which moment, and how often.

use std::time::Duration;

use contract::{FaultKind, FaultMoment, FaultRequest, MOST_FAULTS};
use pgwire::SqlLexer;

use crate::duration::parse_span;

/// Maximum number before the unit of a rate.
const MOST_UNITS: u64 = 999_999_999_999;

/// A fault that a client has requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub effect: FaultEffect,
    /// When it happens.
    pub moment: FaultMoment,
    /// Statements that count. `None` means all.
    pub statement: Option<String>,
    /// Number of the first candidate that the fault hits, from 1.
    pub nth: u64,
    /// Number of candidates that the fault hits.
    pub times: u64,
}

/// Effect of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultEffect {
    /// An error with this SQLSTATE: see [`FaultEffect::ends_session`].
    Error {
        /// Five digits or upper-case letters.
        sqlstate: String,
        /// How long new connections get the error, too.
        duration: Option<Duration>,
    },
    /// The connection is closed with a TCP reset.
    Reset,
    /// The connection stays open, and neither side gets another byte.
    Silence,
    /// The message arrives later.
    Delay(Duration),
    /// All bytes from the message on arrive at this rate, in bytes per second and direction.
    Bandwidth(u64),
    /// Sessions end with 57P01, new connections get 57P03 for a while, and later transactions are read-only for a while.
    Failover {
        /// How long new connections are refused.
        refuses: Option<Duration>,
        /// How long transactions are read-only after that.
        read_only: Option<Duration>,
    },
}

impl FaultEffect {
    /// Returns true if the session ends with the effect.
    #[must_use]
    pub fn ends_session(&self) -> bool {
        self.kind().ends_session()
    }

    fn kind(&self) -> FaultKind {
        match self {
            Self::Error { sqlstate, .. } => FaultKind::of_error(sqlstate),
            Self::Reset | Self::Silence => FaultKind::Connection,
            Self::Delay(_) => FaultKind::Delay,
            Self::Bandwidth(_) => FaultKind::Bandwidth,
            Self::Failover { .. } => FaultKind::Failover,
        }
    }
}

/// Error for a request that describes no possible fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FaultError {
    /// The wrong value, and why.
    pub what: String,
    /// Advice for the user.
    pub hint: String,
}

impl FaultError {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

impl TryFrom<FaultRequest> for Fault {
    type Error = FaultError;

    fn try_from(request: FaultRequest) -> Result<Self, FaultError> {
        let effect = effect(&request)?;
        let moment = match request.at.as_deref() {
            None => effect.kind().default_moment(),
            Some(text) => FaultMoment::of_name(text).ok_or_else(|| {
                let known = FaultMoment::ALL.map(|moment| format!("\"{moment}\"")).join(", ");
                FaultError::new(format!("no moment is called \"{text}\""), format!("at is one of {known}."))
            })?,
        };
        let count = |name: &str, value: Option<u64>| match value.unwrap_or(1) {
            count @ 1..=MOST_FAULTS => Ok(count),
            other => Err(FaultError::new(
                format!("{name} is {other}"),
                format!("Write a number from 1 to {MOST_FAULTS}, or leave it out for 1."),
            )),
        };
        let (nth, times) = (count("nth", request.nth)?, count("times", request.times)?);
        let fault = Self { effect, moment, statement: request.statement, nth, times };
        fault.check()?;
        Ok(fault)
    }
}

impl Fault {
    /// Checks that the effect is possible at the moment.
    fn check(&self) -> Result<(), FaultError> {
        let Self { effect, moment, statement, .. } = self;
        let kind = effect.kind();
        if !kind.is_possible_at(*moment) {
            return Err(FaultError::new(
                format!("an error after which the session goes on cannot happen \"{moment}\""),
                "Use \"commit\" or \"after statement\", or end the session: with 57P01, or a lost connection.",
            ));
        }
        if self.nth > 1 && !kind.has_nth_at(*moment) {
            return Err(FaultError::new("a failover at once has no nth", "Leave nth out, or write at."));
        }
        if statement.is_some() && !moment.has_statement() {
            return Err(FaultError::new("a connection has no statement", "Leave statement or at out."));
        }
        if statement.as_deref().is_some_and(|text| !has_token(text)) {
            return Err(FaultError::new("statement is empty", "Leave it out for all statements."));
        }
        Ok(())
    }

    /// Returns the fault as reports name it, such as "40001 at commit".
    #[must_use]
    pub fn description(&self) -> String {
        let effect = match &self.effect {
            FaultEffect::Error { sqlstate, .. } => sqlstate.clone(),
            FaultEffect::Reset => "connection lost".to_owned(),
            FaultEffect::Silence => "connection silent".to_owned(),
            FaultEffect::Delay(time) => format!("delay of {} ms", time.as_millis()),
            FaultEffect::Bandwidth(rate) => format!("{rate} bytes per second"),
            FaultEffect::Failover { .. } => "failover".to_owned(),
        };
        let statement = self.statement.as_ref().map_or(String::new(), |text| format!(" \"{text}\""));
        let nth = if self.nth == 1 { String::new() } else { format!(", number {}", self.nth) };
        let times = if self.times == 1 { String::new() } else { format!(", {} times", self.times) };
        format!("{effect} at {}{statement}{nth}{times}", self.moment)
            .replace(" at before", " before")
            .replace(" at after", " after")
            .replace(" at during", " during")
    }
}

/// Returns true if a text consists of more than white space and comments.
fn has_token(text: &str) -> bool {
    SqlLexer::new(text.as_bytes(), true).token().is_some()
}

fn effect(request: &FaultRequest) -> Result<FaultEffect, FaultError> {
    let FaultRequest { error, connection, delay, bandwidth, duration, read_only, .. } = request;
    let time = |name: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => parse_span(text).map(Some).ok_or_else(|| {
            let hint = "Write a number and ms, s, min or h: \"2s\". The maximum is \"8784h\".";
            FaultError::new(format!("{name} is \"{text}\""), hint)
        }),
    };
    let duration = time("duration", duration)?;
    let read_only = time("read_only", read_only)?;
    let effect = match (error.as_deref(), connection.as_deref(), time("delay", delay)?, bandwidth.as_deref())
    {
        (Some("failover"), None, None, None) => FaultEffect::Failover { refuses: duration, read_only },
        (Some(sqlstate), None, None, None) => error_effect(sqlstate, duration)?,
        (None, Some("reset"), None, None) => FaultEffect::Reset,
        (None, Some("silent"), None, None) => FaultEffect::Silence,
        (None, Some(other), None, None) => {
            return Err(FaultError::new(
                format!("no connection is lost by \"{other}\""),
                "connection is \"reset\" or \"silent\".",
            ));
        }
        (None, None, Some(delay), None) => FaultEffect::Delay(delay),
        (None, None, None, Some(rate)) => FaultEffect::Bandwidth(bandwidth_of(rate)?),
        _ => {
            return Err(FaultError::new(
                "a fault is one of error, connection, delay and bandwidth",
                "Request one fault for each.",
            ));
        }
    };
    let kind = effect.kind();
    if read_only.is_some() && !kind.has_read_only() {
        return Err(FaultError::new("only a failover has read_only", "Leave it out."));
    }
    if duration.is_some() && !kind.has_duration() {
        return Err(FaultError::new("only a failover and 57P03 have a duration", "Leave it out."));
    }
    Ok(effect)
}

fn error_effect(sqlstate: &str, duration: Option<Duration>) -> Result<FaultEffect, FaultError> {
    let is_code = sqlstate.len() == 5
        && sqlstate.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    // The classes 00, 01 and 02 are success, warnings and "no data".
    let is_error = is_code && !["00", "01", "02"].contains(&&sqlstate[..2]);
    if !is_error {
        return Err(FaultError::new(
            format!("\"{sqlstate}\" is no SQLSTATE of an error"),
            "Write its five characters, for instance \"40001\", or \"failover\".",
        ));
    }
    Ok(FaultEffect::Error { sqlstate: sqlstate.to_owned(), duration })
}

/// Parses a rate such as `10kB`. Returns bytes per second.
fn bandwidth_of(text: &str) -> Result<u64, FaultError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "B" => Some(1),
        "kB" => Some(1000),
        "MB" => Some(1_000_000),
        _ => None,
    };
    let count = count.parse::<u64>().ok().filter(|count| (1..=MOST_UNITS).contains(count));
    count.zip(unit).map(|(count, unit)| count * unit).ok_or_else(|| {
        let hint = format!("Write a number and B, kB or MB: \"10kB\". The maximum is \"{MOST_UNITS}MB\".");
        FaultError::new(format!("bandwidth is \"{text}\""), hint)
    })
}

#[cfg(test)]
mod tests;
