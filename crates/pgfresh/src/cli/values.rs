//! Parses the values of options.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a server setting, which consists of a name and a value.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as work_mem=64MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns a parser for integers within `bounds`.
pub(crate) fn number(bounds: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", bounds.start(), bounds.end()))
    }
}

pub(crate) fn database(name: &str) -> Result<String, String> {
    if name.is_empty() { Err("it is empty".to_owned()) } else { Ok(name.to_owned()) }
}

pub(crate) fn span(text: &str) -> Result<Duration, String> {
    gateway::parse_span(text)
        .ok_or_else(|| "expected a time with its unit (ms, s, min or h), such as 5s".to_owned())
}

/// Parses a port. In a Kubernetes cluster with a service called pgfresh, every container has the variable
/// `PGFRESH_PORT=tcp://HOST:PORT`, so a value of this form counts as unset.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    if text.starts_with("tcp://") {
        return Ok(0);
    }
    text.parse().map_err(|_| "expected a number from 0 to 65535".to_owned())
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    storage::parse_bytes(text).ok_or_else(|| "expected a size with a unit, such as 10GB".to_owned())
}

/// Parses an age: a number of days, or a time in the format of [`span`].
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').map(str::trim).and_then(|days| days.parse::<u32>().ok());
    let days = days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    days.or_else(|| gateway::parse_span(text))
        .ok_or_else(|| "expected an age with a unit, such as 30d or 12h".to_owned())
}

/// Parses a time in seconds or minutes, from 3 s to an hour.
pub(crate) fn soak(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let seconds = seconds.filter(|seconds| (3..=3600).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a time such as 90s or 2m, from 3s to 60m".to_owned())
}
