//! Parses durations with a unit, such as `200ms`.

use std::time::Duration;

/// Maximum duration in milliseconds. An unlimited duration could make an `Instant` overflow.
const MAX_MILLISECONDS: u64 = 366 * 86_400_000;

/// Parses a number with one of PostgreSQL's units (ms, s, min or h) or with m, short for min. Only 0 needs no unit.
/// Returns `None` for any other text and for more than a year.
#[must_use]
pub fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let millis: u64 = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "" if count.bytes().all(|digit| digit == b'0') => 1,
        _ => return None,
    };
    let count: u64 = count.parse().ok()?;
    count.checked_mul(millis).filter(|millis| *millis <= MAX_MILLISECONDS).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_bounds() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, span) in [
            ("5s", seconds(5)),
            ("5000 ms", seconds(5)),
            ("2m", seconds(120)),
            ("2min", seconds(120)),
            ("1h", seconds(3600)),
            ("0", seconds(0)),
            ("5", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
            ("9999999999999h", None),
        ] {
            assert_eq!(parse_span(text), span, "{text}");
        }
    }
}
