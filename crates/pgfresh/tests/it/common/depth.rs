//! Determines how many cases endless tests try.
//!
//! `PGFRESH_TEST_DEPTH` is an integer from 1. The default 1 is quick enough to run on each change. Each run selects
//! its cases at random, so several runs cover more. From [`ALL`] on, tests try every case in a finite set, while the
//! number of generated cases grows without bound.

use std::sync::OnceLock;

use super::random::Random;

/// Depth from which tests try every case in a finite set.
const ALL: u32 = 10;

fn depth() -> u32 {
    static DEPTH: OnceLock<u32> = OnceLock::new();
    *DEPTH.get_or_init(|| match std::env::var("PGFRESH_TEST_DEPTH") {
        Ok(text) => match text.parse() {
            Ok(depth @ 1..) => depth,
            _ => panic!("PGFRESH_TEST_DEPTH is no whole number from 1: {text}"),
        },
        Err(_) => 1,
    })
}

/// Whether tests try every case in a finite set, as once a week.
pub(crate) fn is_deep() -> bool {
    depth() >= ALL
}

/// Returns the number of rounds, cases or kills, which is `usual` times the depth.
pub(crate) fn rounds(usual: u32) -> u32 {
    usual * depth()
}

/// Selects random cases from `all` and keeps their order. At a depth of 1, selects a tenth of them, but at least one.
pub(crate) fn some_of<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().collect();
    let kept = (all.len() * depth().min(ALL) as usize).div_ceil(ALL as usize);
    let mut random = Random::new();
    while all.len() > kept {
        all.remove(random.below(all.len()));
    }
    all
}
