//! Arbitrary bytes for `exercise`.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../exercise.rs"]
mod exercise;
#[path = "../../src/wire/mod.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::exercise(bytes));
