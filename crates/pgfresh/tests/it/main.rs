//! Tests of the binary, and of the crates below it with real servers: a module for each subject.
//!
//! ```sh
//! cargo test -p pgfresh --test it                  # all
//! cargo test -p pgfresh --test it gateway::        # one module
//! ```
//! All modules are one process, and tests of different modules run at once. Therefore no test changes the process: its environment,
//! working directory, umask, limits or signal handlers. A test that needs other ones starts a child.
// Tests may ignore failures.
#![allow(clippy::let_underscore_must_use)]

mod all_databases;
mod background;
mod bench;
mod boundaries;
mod budgets;
mod circles;
mod clean;
mod cleanup;
mod common;
mod database;
mod diff;
mod differential;
mod doctor;
mod drivers;
mod environments;
mod error_words;
mod errors;
mod fleet;
mod full;
mod gateway;
mod hostile;
mod house;
mod http;
mod installing;
mod inward;
mod isolation;
mod kept;
mod kills;
mod lease_terms;
mod leased_server;
mod limits;
mod load;
mod logging;
mod name_rules;
mod named;
mod network;
mod newer;
mod open;
mod output;
mod postmaster;
mod profile;
mod recycle;
mod remote;
mod rollback;
mod secrets;
mod shims;
mod standby;
mod template;
mod tls;
mod troubleshooting;
mod turns;
mod uninvited;
mod unmodified_suites;
mod unread;
mod variables;
mod wal;
