//! Checks rules for this repository's sources and pages.

mod boundaries;
mod circles;
mod error_words;
mod figures;
mod house;
mod linux_facts;
mod majors;
mod minimum_rust;
mod test_index;
mod test_names;
mod troubleshooting;
