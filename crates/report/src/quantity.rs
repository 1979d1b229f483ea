//! Represents numbers with units, and formats them for humans.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number's unit. Machine-readable formats always use this unit itself, whereas human-readable formats use a
/// suitable multiple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A time, displayed in ns, µs, ms or s.
    Seconds,
    /// Events per second, displayed in /s, k/s or M/s.
    PerSecond,
    /// Bytes, displayed in B, kB, MB, GB or TB (powers of 1000).
    Bytes,
    /// A count. Whole numbers are displayed with all their digits.
    Count,
    /// The quotient of two quantities of the same unit.
    Ratio,
    /// Degrees Celsius.
    Celsius,
}

/// A multiple of a unit: 10 to the power of `exponent`. Used for numbers whose own decimal exponent is at
/// least `from`.
struct Scale {
    from: i32,
    exponent: i32,
    symbol: &'static str,
}

const fn scale(from: i32, exponent: i32, symbol: &'static str) -> Scale {
    Scale { from, exponent, symbol }
}

impl Unit {
    /// Returns the unit's name in JSON and CSV.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::PerSecond => "per_second",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Ratio => "ratio",
            Self::Celsius => "celsius",
        }
    }

    /// Returns the unit's multiples, smallest first. The first multiple also covers all smaller numbers.
    fn scales(self) -> &'static [Scale] {
        match self {
            Self::Seconds => {
                const { &[scale(-9, -9, "ns"), scale(-6, -6, "µs"), scale(-3, -3, "ms"), scale(0, 0, "s")] }
            }
            // Database rates usually have four digits, and people are more used to "2590 /s" than to "2.59 k/s".
            Self::PerSecond => const { &[scale(0, 0, "/s"), scale(4, 3, "k/s"), scale(7, 6, "M/s")] },
            Self::Bytes => {
                const {
                    &[
                        scale(0, 0, "B"),
                        scale(3, 3, "kB"),
                        scale(6, 6, "MB"),
                        scale(9, 9, "GB"),
                        scale(12, 12, "TB"),
                    ]
                }
            }
            Self::Count => const { &[scale(0, 0, "")] },
            Self::Ratio => const { &[scale(0, 0, "×")] },
            Self::Celsius => const { &[scale(0, 0, "°C")] },
        }
    }

    /// Returns the upper limit for whole numbers without decimals, as in "5 B" rather than "5.00 B".
    fn exact_below(self) -> f64 {
        match self {
            Self::Bytes => 1e3,
            Self::Count => 1e15,
            Self::Seconds | Self::PerSecond | Self::Ratio | Self::Celsius => 0.0,
        }
    }
}

/// A number with a unit.
///
/// `Display` uses three significant digits, as in `1.23 ms`, `45.6 µs`, `12.3 MB`, `512 /s` or `1.15 ×`. Very large and
/// very small numbers have an exponent. Numbers that aren't finite are `NaN` or `inf`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// The number in multiples of `unit`, unrounded.
    pub value: f64,
    /// The unit of `value`.
    pub unit: Unit,
}

impl Quantity {
    /// Creates a quantity of `value` times `unit`. A negative zero, such as the sum of no numbers, becomes zero.
    #[must_use]
    pub fn new(value: f64, unit: Unit) -> Self {
        Self { value: value + 0.0, unit }
    }

    /// Returns the number in human-readable form, and the symbol of the multiple used.
    fn number_and_symbol(self) -> (String, &'static str) {
        let Self { value, unit } = self;
        let scales = unit.scales();
        let base = scales.iter().find(|scale| scale.exponent == 0).map_or("", |scale| scale.symbol);
        if value == 0.0 {
            return ("0".to_owned(), base);
        }
        if value.fract() == 0.0 && value.abs() < unit.exact_below() {
            return (value.to_string(), base);
        }
        // Round the number before selecting the multiple, because 999.9 µs, for example, becomes 1.00 ms. Round in
        // decimal, because powers of ten aren't binary fractions.
        let rounded = format!("{value:.2e}");
        let Some((mantissa, exponent)) = rounded.split_once('e') else { return (rounded, base) };
        let (Ok(digits), Ok(exponent)) = (mantissa.parse::<f64>(), exponent.parse::<i32>()) else {
            return (rounded, base);
        };
        let scale = scales.iter().rfind(|scale| exponent >= scale.from).unwrap_or(&scales[0]);
        let shift = exponent - scale.exponent;
        let number = if (-3..=6).contains(&shift) {
            let decimals = usize::try_from(2 - shift).unwrap_or(0);
            format!("{:.decimals$}", digits * 10_f64.powi(shift))
        } else {
            format!("{mantissa}e{shift}")
        };
        (number, scale.symbol)
    }
}

/// Formats a whole number with commas between groups of three digits.
#[must_use]
pub fn grouped(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun, such as `1 statement` or `1,200 statements`.
#[must_use]
pub fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { several })
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number_and_symbol() {
            (number, "") => formatter.pad(&number),
            (number, symbol) => formatter.pad(&format!("{number} {symbol}")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNITS: [Unit; 6] =
        [Unit::Seconds, Unit::PerSecond, Unit::Bytes, Unit::Count, Unit::Ratio, Unit::Celsius];

    fn read(value: f64, unit: Unit) -> String {
        Quantity::new(value, unit).to_string()
    }

    #[test]
    fn quantity_has_three_digits_and_suitable_unit() {
        for (value, unit, text) in [
            (0.001_234, Unit::Seconds, "1.23 ms"),
            (45.6e-6, Unit::Seconds, "45.6 µs"),
            (1.2, Unit::Seconds, "1.20 s"),
            (-0.002_104, Unit::Seconds, "-2.10 ms"),
            (0.5e-9, Unit::Seconds, "0.500 ns"),
            (2700.0, Unit::Seconds, "2700 s"),
            (12_345_678.0, Unit::Bytes, "12.3 MB"),
            (512.0, Unit::Bytes, "512 B"),
            (5.0, Unit::Bytes, "5 B"),
            (1024.0, Unit::Bytes, "1.02 kB"),
            (512.4, Unit::PerSecond, "512 /s"),
            (2587.0, Unit::PerSecond, "2590 /s"),
            (0.5, Unit::PerSecond, "0.500 /s"),
            (12_345.0, Unit::PerSecond, "12.3 k/s"),
            (1.15, Unit::Ratio, "1.15 ×"),
            (54.0, Unit::Ratio, "54.0 ×"),
            (12_345.0, Unit::Count, "12345"),
            (12.5, Unit::Count, "12.5"),
        ] {
            assert_eq!(read(value, unit), text);
        }
    }

    #[test]
    fn rounding_up_reaches_the_next_unit() {
        assert_eq!(read(999.4e-6, Unit::Seconds), "999 µs");
        assert_eq!(read(999.6e-6, Unit::Seconds), "1.00 ms");
        assert_eq!(read(999.6e6, Unit::Bytes), "1.00 GB");
        assert_eq!(read(9996.0, Unit::PerSecond), "10.0 k/s");
    }

    #[test]
    fn extreme_quantities_remain_readable() {
        assert_eq!(read(1.234e-20, Unit::Seconds), "1.23e-11 ns");
        assert_eq!(read(1e300, Unit::Ratio), "1.00e300 ×");
        assert_eq!(read(-0.0, Unit::Seconds), "0 s");
        assert!(Quantity::new([0.0_f64; 0].iter().sum(), Unit::Seconds).value.is_sign_positive());
        assert_eq!(read(f64::NAN, Unit::Seconds), "NaN s");
        assert_eq!(read(f64::NEG_INFINITY, Unit::Ratio), "-inf ×");
    }

    #[test]
    fn quantity_is_padded_to_width() {
        assert_eq!(format!("{:>8}", Quantity::new(1.2, Unit::Seconds)), "  1.20 s");
    }

    pub(crate) fn unit() -> impl Strategy<Value = Unit> {
        prop::sample::select(UNITS.to_vec())
    }

    /// Parses `text` the way a reader would understand it.
    fn understood(text: &str, unit: Unit) -> f64 {
        let (number, symbol) = text.split_once(' ').unwrap_or((text, ""));
        let scale = unit.scales().iter().find(|scale| scale.symbol == symbol).unwrap();
        let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
        format!("{mantissa}e{}", exponent.parse::<i32>().unwrap() + scale.exponent).parse().unwrap()
    }

    proptest! {
        #[test]
        fn arbitrary_quantities_can_be_displayed(value in any::<f64>(), unit in unit()) {
            prop_assert!(!read(value, unit).is_empty());
        }

        #[test]
        fn printed_quantity_is_accurate_to_half_a_percent(
            value in prop::num::f64::POSITIVE | prop::num::f64::NEGATIVE | prop::num::f64::NORMAL,
            unit in unit(),
        ) {
            prop_assume!(value.is_normal());
            let error = (understood(&read(value, unit), unit) / value - 1.0).abs();
            prop_assert!(error <= 0.005 + 1e-9, "{} reads {}", value, read(value, unit));
        }

        #[test]
        fn usual_durations_take_seven_columns_at_most(exponent in -9.0..3.0) {
            let text = read(10_f64.powf(exponent), Unit::Seconds);
            prop_assert!(text.chars().count() <= 7, "{}", text);
        }
    }
}
