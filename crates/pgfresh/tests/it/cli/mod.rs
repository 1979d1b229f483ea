//! Commands of the command line, and its messages.

mod bench;
mod diff;
mod doctor;
mod errors;
mod logging;
mod open;
mod output;
mod profile;
mod run;
mod serve_name;
