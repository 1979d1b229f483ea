//! Arbitrary bytes for `exercise`.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../exercise.rs"]
mod exercise;
#[path = "../../src/isolation.rs"]
mod isolation;
#[path = "../../src/span.rs"]
mod span;
#[path = "../../src/wire/mod.rs"]
mod wire;

use isolation::Isolation;
use span::parse_span;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::exercise(bytes));
