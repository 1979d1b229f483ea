//! Parses the client's `pgfresh.…` settings from its startup message.
//!
//! PostgreSQL accepts any setting with a dot in its name, so the gateway can leave these parameters in the message for
//! the server.

use std::time::Duration;

use pgwire::{ErrorResponse, StartupParams};

use lease::{ConnectRequest, Isolation, ParseIsolationError};

use crate::parse_span;

/// The client's pgfresh settings for one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionSettings {
    /// Template for a new database, if the session needs one.
    pub(crate) template: Option<String>,
    /// How long the lease lasts after its last session has ended.
    pub(crate) linger: Option<Duration>,
    /// Whether pgfresh resets the database first, even if no session has used it yet.
    pub(crate) reset: bool,
    /// Whether pgfresh records the lease's statements, starting with this session.
    pub(crate) record: bool,
    /// Isolation to use if this session starts a new lease.
    pub(crate) isolation: Option<Isolation>,
}

impl SessionSettings {
    /// Reads the pgfresh settings in `params`, ignoring all other parameters, which are meant for the server.
    pub(crate) fn read(params: &StartupParams) -> Result<Self, ErrorResponse> {
        let mut settings = Self::default();
        params.settings().iter().try_for_each(|(name, value)| settings.set(name, value))?;
        Ok(settings)
    }

    /// Returns a request for a session in `database` with these settings.
    pub(crate) fn request<'a>(&'a self, database: &'a str, params: &'a StartupParams) -> ConnectRequest<'a> {
        ConnectRequest {
            template: self.template.as_deref(),
            isolation: self.isolation,
            linger: self.linger,
            reset: self.reset,
            ..ConnectRequest::new(database, params)
        }
    }

    /// Applies one setting, ignoring names that don't begin with `pgfresh.`.
    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), ErrorResponse> {
        let Some((b"pgfresh.", setting)) = name.split_at_checked(8) else { return Ok(()) };
        let value = String::from_utf8_lossy(value);
        match setting {
            b"template" => self.template = Some(value.into_owned()),
            b"linger" => self.linger = Some(parse_duration(&value)?),
            b"reset" => self.reset = parse_bool("reset", &value)?,
            b"record" => self.record = parse_bool("record", &value)?,
            b"isolation" => {
                let isolation = value.parse().map_err(|error: ParseIsolationError| {
                    let message = format!("invalid value for parameter \"pgfresh.isolation\": \"{value}\"");
                    ErrorResponse::fatal("22023", message).hint(error.to_string())
                })?;
                self.isolation = Some(isolation);
            }
            _ => {
                let name = String::from_utf8_lossy(name);
                let refusal =
                    ErrorResponse::fatal("42704", format!("unrecognized configuration parameter \"{name}\""));
                return Err(refusal.hint(
                    "The parameters are pgfresh.template, pgfresh.isolation, pgfresh.linger, pgfresh.reset and pgfresh.record.",
                ));
            }
        }
        Ok(())
    }
}

fn parse_duration(text: &str) -> Result<Duration, ErrorResponse> {
    parse_span(text).ok_or_else(|| {
        ErrorResponse::fatal("22023", format!("invalid value for parameter \"pgfresh.linger\": \"{text}\""))
            .hint("Write a number and ms, s, min or h: \"5s\"; or \"0\".")
    })
}

fn parse_bool(setting: &str, text: &str) -> Result<bool, ErrorResponse> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Ok(true),
        "0" | "off" | "false" | "no" => Ok(false),
        _ => {
            let message = format!("parameter \"pgfresh.{setting}\" requires a Boolean value");
            Err(ErrorResponse::fatal("22023", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(options: &str) -> Result<SessionSettings, ErrorResponse> {
        SessionSettings::read(&StartupParams::new([("options", options)]))
    }

    #[test]
    fn every_spelling_of_option_is_parsed() {
        let wanted = SessionSettings {
            template: Some("a b".to_owned()),
            linger: Some(Duration::from_secs(5)),
            ..SessionSettings::default()
        };
        for options in [
            r"-c pgfresh.template=a\ b -c pgfresh.linger=5s",
            r"-cpgfresh.template=a\ b --pgfresh.linger=5000ms",
            "  -c geqo=off\t-cpgfresh.template=x  --pgfresh.template=a\\ b -c pgfresh.linger=5\\ s -c",
            r"-c PGFRESH.TEMPLATE=a\ b --Pgfresh.Linger=5s",
        ] {
            assert_eq!(settings(options), Ok(wanted.clone()), "{options}");
        }
        let direct = SessionSettings::read(&StartupParams::new([
            ("pgfresh.linger", "0"),
            ("pgfresh.reset", "ON"),
            ("PGFRESH.isolation", "rollback"),
            ("options", "-cpgfresh.record=on -cpgfresh.linger=1s"),
        ]));
        let direct = direct.unwrap();
        assert_eq!((direct.linger, direct.reset), (Some(Duration::ZERO), true));
        assert_eq!((direct.isolation, direct.record), (Some(Isolation::Rollback), true));
    }

    #[test]
    fn foreign_options_are_left_to_server() {
        for options in ["", "-c", "-d 5", "--", "-c pgfresh", "-c pgfresh.template", "\\", "-c a=\u{fc}"] {
            assert_eq!(settings(options), Ok(SessionSettings::default()), "{options}");
        }
    }

    #[test]
    fn unknown_settings_and_bad_values_are_refused() {
        for options in [
            "-c pgfresh.tmplate=a",
            "-c pgfresh.linger=5",
            "-c pgfresh.linger=s",
            "-c pgfresh.=1",
            "-c pgfresh.reset=x",
            "-c pgfresh.record=x",
            "-c pgfresh.isolation=none",
        ] {
            assert!(settings(options).is_err(), "{options}");
        }
    }
}
