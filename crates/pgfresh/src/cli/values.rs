//! Parses the values of options.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Error for the value of an option. The text says which values the option accepts.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ValueError(Cow<'static, str>);

impl From<&'static str> for ValueError {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

/// Parses a server setting, which consists of a name and a value.
pub(crate) fn setting(text: &str) -> Result<(String, String), ValueError> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as work_mem=64MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns a parser for integers within `bounds`.
pub(crate) fn number(bounds: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, ValueError> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            ValueError(format!("expected a number from {} to {}", bounds.start(), bounds.end()).into())
        })
    }
}

/// Parses the name of a database, test or table, which must not be empty.
pub(crate) fn name(name: &str) -> Result<String, ValueError> {
    if name.is_empty() { Err("it is empty".into()) } else { Ok(name.to_owned()) }
}

/// Parses a time with a unit.
pub(crate) fn span(text: &str) -> Result<Duration, ValueError> {
    Ok(gateway::parse_span(text).ok_or("expected a time with its unit (ms, s, min or h), such as 5s")?)
}

/// Parses a port. In a Kubernetes cluster with a service called pgfresh, every container has the variable
/// `PGFRESH_PORT=tcp://HOST:PORT`, so a value of this form counts as unset.
pub(crate) fn port(text: &str) -> Result<u16, ValueError> {
    if text.starts_with("tcp://") {
        return Ok(0);
    }
    text.parse().map_err(|_| "expected a number from 0 to 65535".into())
}

/// Parses a size with a unit. Returns bytes.
pub(crate) fn size(text: &str) -> Result<u64, ValueError> {
    Ok(storage::parse_bytes(text).ok_or("expected a size with a unit, such as 10GB")?)
}

/// Parses an age: a number of days, or a time in the format of [`span`].
pub(crate) fn age(text: &str) -> Result<Duration, ValueError> {
    let days = text.strip_suffix('d').map(str::trim).and_then(|days| days.parse::<u32>().ok());
    let days = days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    let age = days.or_else(|| gateway::parse_span(text));
    Ok(age.ok_or("expected an age with a unit, such as 30d or 12h")?)
}

/// Parses the name of a development server.
pub(crate) fn server_name(text: &str) -> Result<String, ValueError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = (1..=40).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with('-');
    if fits { Ok(text.to_owned()) } else { Err("expected 1 to 40 letters, digits, \"-\" and \"_\"".into()) }
}

/// Parses a time in seconds or minutes, from 3 s to an hour.
pub(crate) fn soak(text: &str) -> Result<Duration, ValueError> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let seconds = seconds.filter(|seconds| (3..=3600).contains(seconds));
    let time = seconds.map(Duration::from_secs);
    Ok(time.ok_or("expected a time such as 90s or 2m, from 3s to 60m")?)
}
