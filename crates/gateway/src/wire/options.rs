//! What a client asks of pgfresh: settings called `pgfresh.…` in its start-up message.
//!
//! They are settings to a plain server too, which takes any name with a dot; so they stay in the message.

use std::time::Duration;

use super::Refusal;
use crate::{Isolation, parse_span};

/// What a session may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The template, if the database is not there yet.
    pub(crate) template: Option<String>,
    /// How long the database outlives its last session.
    pub(crate) linger: Option<Duration>,
    /// Whether the database is to be as its template is, whoever has been in it.
    pub(crate) reset: bool,
    /// How the lease is isolated, if it is a new one.
    pub(crate) isolation: Option<Isolation>,
}

impl Wishes {
    /// Takes a start-up parameter into account: `options`, or a setting by its name.
    pub(crate) fn consider(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if name != b"options" {
            return self.set(name, value);
        }
        let words = split(value);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let assignment = if word == b"-c" {
                words.next().map(Vec::as_slice)
            } else {
                word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-c"))
            };
            // Whatever is wrong with an option, the server says it better.
            let Some(assignment) = assignment else { continue };
            if let Some(at) = assignment.iter().position(|byte| *byte == b'=') {
                self.set(&assignment[..at], &assignment[at + 1..])?;
            }
        }
        Ok(())
    }

    /// Sets what is ours to set; other names are the server's.
    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let Some((b"pgfresh.", setting)) = name.split_at_checked(8) else { return Ok(()) };
        let value = String::from_utf8_lossy(value);
        match setting {
            b"template" => self.template = Some(value.into_owned()),
            b"linger" => self.linger = Some(span(&value)?),
            b"reset" => self.reset = truth(&value)?,
            b"isolation" => {
                let isolation = value.parse().map_err(|why: String| {
                    let message = format!("invalid value for parameter \"pgfresh.isolation\": \"{value}\"");
                    Refusal::new("22023", message).hint(why)
                })?;
                self.isolation = Some(isolation);
            }
            _ => {
                let name = String::from_utf8_lossy(name);
                let refusal =
                    Refusal::new("42704", format!("unrecognized configuration parameter \"{name}\""));
                return Err(refusal.hint(
                    "There are pgfresh.template, pgfresh.isolation, pgfresh.linger and pgfresh.reset.",
                ));
            }
        }
        Ok(())
    }
}

/// Words between white space; a backslash keeps the next byte from being any. Source: `pg_split_opts`.
fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            byte => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    words
}

fn span(text: &str) -> Result<Duration, Refusal> {
    parse_span(text).ok_or_else(|| {
        Refusal::new("22023", format!("invalid value for parameter \"pgfresh.linger\": \"{text}\""))
            .hint("Write a number and ms, s, min or h: \"5s\"; or \"0\".")
    })
}

fn truth(text: &str) -> Result<bool, Refusal> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Ok(true),
        "0" | "off" | "false" | "no" => Ok(false),
        _ => Err(Refusal::new("22023", "parameter \"pgfresh.reset\" requires a Boolean value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(options: &str) -> Result<Wishes, Refusal> {
        let mut wishes = Wishes::default();
        wishes.consider(b"options", options.as_bytes()).map(|()| wishes)
    }

    #[test]
    fn every_spelling_of_an_option_is_read() {
        let wanted = Wishes {
            template: Some("a b".to_owned()),
            linger: Some(Duration::from_secs(5)),
            ..Wishes::default()
        };
        for options in [
            r"-c pgfresh.template=a\ b -c pgfresh.linger=5s",
            r"-cpgfresh.template=a\ b --pgfresh.linger=5000ms",
            "  -c geqo=off\t-cpgfresh.template=x  --pgfresh.template=a\\ b -c pgfresh.linger=5\\ s -c",
        ] {
            assert_eq!(wishes(options), Ok(wanted.clone()), "{options}");
        }
        let mut direct = Wishes::default();
        direct.consider(b"pgfresh.linger", b"0").unwrap();
        direct.consider(b"pgfresh.reset", b"ON").unwrap();
        direct.consider(b"pgfresh.isolation", b"rollback").unwrap();
        assert_eq!((direct.linger, direct.reset), (Some(Duration::ZERO), true));
        assert_eq!(direct.isolation, Some(Isolation::Rollback));
    }

    #[test]
    fn others_options_are_the_servers() {
        for options in ["", "-c", "-d 5", "--", "-c pgfresh", "-c pgfresh.template", "\\", "-c a=\u{fc}"] {
            assert_eq!(wishes(options), Ok(Wishes::default()), "{options}");
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
            "-c pgfresh.isolation=none",
        ] {
            assert!(wishes(options).is_err(), "{options}");
        }
    }
}
