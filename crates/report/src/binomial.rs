//! Computes the binomial distribution for fair coins.
//!
//! The sign test for drift and a median's confidence interval depend on the same question: how likely is this number
//! of heads in `n` coin tosses?

use std::f64::consts::LN_2;

use crate::sample::as_f64;

/// Returns the probabilities that `n` fair coins come up heads at most 0, 1, …, `n` times.
///
/// The terms are computed from their logarithms, because 2⁻ⁿ underflows for `n` ≥ 1075. The relative error is below
/// 10⁻⁸ for `n` up to a million.
pub(crate) fn cumulative(n: usize) -> impl Iterator<Item = f64> {
    let mut log_probability = -LN_2 * as_f64(n);
    let mut sum = 0.0;
    (0..=n).map(move |heads| {
        sum += log_probability.exp();
        log_probability += (as_f64(n - heads) / as_f64(heads + 1)).ln();
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_coins_have_binomial_probabilities() {
        let expected = [1.0, 7.0, 22.0, 42.0, 57.0, 63.0, 64.0];
        for (got, expected) in cumulative(6).zip(expected) {
            assert!((got - expected / 64.0).abs() < 1e-14, "{got} is not {expected}/64");
        }
        assert_eq!(cumulative(6).count(), 7);
        assert_eq!(cumulative(0).collect::<Vec<_>>(), [1.0]);
    }

    #[test]
    fn binomial_sums_stay_accurate_for_million_trials() {
        // By symmetry, at most 499 999 heads are as likely as at least 500 001.
        let mut sums = cumulative(1_000_000).skip(499_999);
        let (below, up_to) = (sums.next().unwrap(), sums.next().unwrap());
        assert!((below + up_to - 1.0).abs() < 1e-8, "{below} + {up_to}");
        assert!((sums.last().unwrap() - 1.0).abs() < 1e-8);
    }
}
