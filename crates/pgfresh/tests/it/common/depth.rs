//! How much is tried of what could be tried without end.
//!
//! `PGFRESH_TEST_DEPTH` is a whole number from 1, which it is by itself: quick enough for each change. Each run draws anew
//! what it tries, so runs add up. From [`ALL`] on, what is finite is tried in full; cases that are generated grow without bound.

use std::sync::OnceLock;

use super::random::Random;

/// The depth from which nothing finite is left out.
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

/// The number of rounds, cases or kills: `usual` at a depth of 1, and so many times as many.
pub(crate) fn rounds(usual: u32) -> u32 {
    usual * depth()
}

/// What to try of `all`, in their order: at a depth of 1 a tenth of them, drawn at random, but at least one.
pub(crate) fn some_of<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().collect();
    let kept = (all.len() * depth().min(ALL) as usize).div_ceil(ALL as usize);
    let mut random = Random::new();
    while all.len() > kept {
        all.remove(random.below(all.len()));
    }
    all
}
