//! Formats numbers for sentences, and does small calculations with the planner's numbers.

use report::{Quantity, Unit, grouped};

/// Returns a rounded number with thousands separators, such as `774,288`, or in millions, such as `48 million`.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    for (least, word) in [(1e9, "billion"), (1e6, "million")] {
        if value >= 0.9995 * least {
            let scaled = value / least;
            let decimals = usize::from(scaled < 9.95 && (scaled * 10.0).round() % 10.0 != 0.0);
            return format!("{scaled:.decimals$} {word}");
        }
    }
    cost(value)
}

/// Returns a cost with thousands separators and without decimals, such as `774,288`.
pub(crate) fn cost(value: f64) -> String {
    grouped(format_args!("{value:.0}"))
}

/// Returns a number of distinct values. A negative `distinct` is minus their ratio to `rows`, as in
/// `pg_stats.n_distinct`.
pub(crate) fn distinct_values(distinct: f64, rows: f64) -> f64 {
    if distinct < 0.0 { -distinct * rows } else { distinct }
}

/// Rounds a size in bytes up to a multiple of 8, as PostgreSQL aligns rows.
pub(crate) fn aligned(size: f64) -> f64 {
    (size / 8.0).ceil() * 8.0
}

/// Returns `value` without its fractional part. Negative values become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such casts saturate")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// Formats a number of bytes, such as `4.29 GB`.
pub(crate) fn bytes(value: f64) -> String {
    Quantity::new(value.round(), Unit::Bytes).to_string()
}

/// Formats a fraction as a percentage, such as `97 %`. Only exactly 1 is `100 %`, and only exactly 0 is `0 %`.
pub(crate) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent < 1.0 && percent > 0.0 {
        return "less than 1 %".to_owned();
    }
    if percent > 99.0 && percent < 100.0 {
        return "more than 99 %".to_owned();
    }
    format!("{percent:.0} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (value, text) in [
            (7.0, "7"),
            (1234.4, "1,234"),
            (774_288.0, "774,288"),
            (1e6, "1 million"),
            (1_260_000.0, "1.3 million"),
            (48e6, "48 million"),
            (2.5e9, "2.5 billion"),
            (999_700.0, "1 million"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((cost(48e6), bytes(4_294_967_296.0)), ("48,000,000".to_owned(), "4.29 GB".to_owned()));
        assert_eq!(
            (percent(0.999), percent(0.97), percent(1.0)),
            ("more than 99 %".into(), "97 %".into(), "100 %".into())
        );
    }
}
