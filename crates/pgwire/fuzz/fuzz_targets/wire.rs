//! Arbitrary bytes for `exercise`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pgwire::exercise::exercise(bytes));
