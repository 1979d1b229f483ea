//! Defines a fault: its effect, the moment when it happens, and how often it happens. Validates requests for faults.

use std::time::Duration;

use contract::{FaultKind, FaultMoment, FaultRequest, MOST_FAULTS};
use pgwire::SqlLexer;

use crate::duration::parse_span;

/// Maximum number in front of a bandwidth's unit.
const MOST_UNITS: u64 = 999_999_999_999;

/// A fault that a client has requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub effect: FaultEffect,
    /// When it happens.
    pub moment: FaultMoment,
    /// Pattern that selects the statements that the fault counts, such as `UPDATE accounts`. `None` selects all
    /// statements.
    pub statement: Option<String>,
    /// Number of the first candidate (a counted statement or connection) that the fault hits, from 1.
    pub nth: u64,
    /// Maximum number of candidates that the fault hits.
    pub times: u64,
}

/// Effect of a fault on a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultEffect {
    /// The statement fails with this SQLSTATE. Some SQLSTATEs also end the session: see [`FaultEffect::ends_session`].
    Error {
        /// Five digits or uppercase letters.
        sqlstate: String,
        /// How long new connections get the same error. `None` means that they don't.
        duration: Option<Duration>,
    },
    /// The gateway closes the connection with a TCP reset.
    Reset,
    /// The connection stays open, but neither side receives another byte.
    Silence,
    /// The message arrives after this delay.
    Delay(Duration),
    /// Bytes arrive at this rate from the message on, in bytes per second for each direction.
    Bandwidth(u64),
    /// Sessions end with 57P01. New connections fail with 57P03 for a while, and later transactions are read-only for a
    /// while.
    Failover {
        /// How long new connections fail. `None` means that the next `times` connections fail.
        refuses: Option<Duration>,
        /// How long transactions are read-only after the refusal.
        read_only: Option<Duration>,
    },
}

impl FaultEffect {
    /// Returns true if the effect ends the session.
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

/// Error for an invalid fault request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FaultError {
    /// Description of the mistake, with the invalid value.
    pub what: String,
    /// Advice for the user: the allowed values.
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
                FaultError::new(
                    format!("\"at\" is \"{text}\", which is not a moment"),
                    format!("\"at\" must be one of {known}."),
                )
            })?,
        };
        let count = |name: &str, value: Option<u64>| match value.unwrap_or(1) {
            count @ 1..=MOST_FAULTS => Ok(count),
            other => Err(FaultError::new(
                format!("\"{name}\" is {other}, which is out of range"),
                format!("Write a number from 1 to {MOST_FAULTS}, or leave \"{name}\" out for 1."),
            )),
        };
        let (nth, times) = (count("nth", request.nth)?, count("times", request.times)?);
        let fault = Self { effect, moment, statement: request.statement, nth, times };
        fault.check()?;
        Ok(fault)
    }
}

impl Fault {
    /// Checks that the fault's members are compatible with its moment.
    fn check(&self) -> Result<(), FaultError> {
        let Self { effect, moment, statement, .. } = self;
        let kind = effect.kind();
        if !kind.is_possible_at(*moment) {
            return Err(FaultError::new(
                format!("\"at\" is \"{moment}\", but only errors that end the session can happen then"),
                "Use \"commit\" or \"after statement\", or end the session with 57P01 or a lost connection.",
            ));
        }
        if self.nth > 1 && !kind.has_nth_at(*moment) {
            return Err(FaultError::new(
                format!("\"nth\" is {}, but a failover at \"{moment}\" happens immediately", self.nth),
                "Leave \"nth\" out, or set \"at\" to another moment, such as \"commit\".",
            ));
        }
        if statement.is_some() && !moment.has_statement() {
            return Err(FaultError::new(
                format!("\"statement\" is set, but no statement runs at \"{moment}\""),
                "Leave \"statement\" out, or set \"at\" to another moment, such as \"before statement\".",
            ));
        }
        if statement.as_deref().is_some_and(|text| !has_token(text)) {
            return Err(FaultError::new(
                "\"statement\" is empty",
                "Leave \"statement\" out to match all statements.",
            ));
        }
        Ok(())
    }

    /// Returns a description for reports, such as "40001 at commit".
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

/// Returns true if `text` contains anything besides white space and comments.
fn has_token(text: &str) -> bool {
    SqlLexer::new(text.as_bytes(), true).token().is_some()
}

fn effect(request: &FaultRequest) -> Result<FaultEffect, FaultError> {
    let FaultRequest { error, connection, delay, bandwidth, duration, read_only, .. } = request;
    let time = |name: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => parse_span(text).map(Some).ok_or_else(|| {
            let hint = "Write a number and ms, s, min or h: \"2s\". The maximum is \"8784h\".";
            FaultError::new(format!("\"{name}\" is \"{text}\", which is not a duration"), hint)
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
                format!("\"connection\" is \"{other}\", which is not a known effect"),
                "\"connection\" must be \"reset\" or \"silent\".",
            ));
        }
        (None, None, Some(delay), None) => FaultEffect::Delay(delay),
        (None, None, None, Some(rate)) => FaultEffect::Bandwidth(bandwidth_of(rate)?),
        _ => {
            return Err(FaultError::new(
                "a fault needs exactly one of \"error\", \"connection\", \"delay\" and \"bandwidth\"",
                "Set one of them. For several effects, request several faults.",
            ));
        }
    };
    let kind = effect.kind();
    if read_only.is_some() && !kind.has_read_only() {
        return Err(FaultError::new(
            "\"read_only\" is set, but only a failover can have it",
            "Leave \"read_only\" out.",
        ));
    }
    if duration.is_some() && !kind.has_duration() {
        return Err(FaultError::new(
            "\"duration\" is set, but only a failover and 57P03 can have it",
            "Leave \"duration\" out.",
        ));
    }
    Ok(effect)
}

fn error_effect(sqlstate: &str, duration: Option<Duration>) -> Result<FaultEffect, FaultError> {
    let is_code = sqlstate.len() == 5
        && sqlstate.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    // The classes 00, 01 and 02 are success, warnings and "no data", so they aren't errors.
    let is_error = is_code && !["00", "01", "02"].contains(&&sqlstate[..2]);
    if !is_error {
        return Err(FaultError::new(
            format!("\"{sqlstate}\" is not an error SQLSTATE"),
            "Write the five characters of an error's code, such as \"40001\", or \"failover\".",
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
        FaultError::new(format!("\"bandwidth\" is \"{text}\", which is not a rate"), hint)
    })
}

#[cfg(test)]
mod tests;
