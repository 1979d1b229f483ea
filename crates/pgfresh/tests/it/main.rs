//! Tests of the binary, and of the crates below it with real servers: a module for each command and feature. CONTRIBUTING.md has an
//! index of them.
//!
//! ```sh
//! cargo test -p pgfresh --test it                  # all
//! cargo test -p pgfresh --test it gateway::        # one module
//! ```
//! All modules are one process, and tests of different modules run at once. Therefore no test changes the process: its environment,
//! working directory, umask, limits or signal handlers. A test that needs other ones starts a child.
// Tests may ignore failures.
#![allow(clippy::let_underscore_must_use)]

mod backends;
mod background;
mod budgets;
mod cleanup;
mod cli;
mod common;
mod copies;
mod environments;
mod faults;
// Its machines are network namespaces.
#[cfg(target_os = "linux")]
mod fleet;
mod gateway;
mod http;
mod installations;
mod leases;
mod limits;
mod migrations;
mod plans;
mod remote;
mod repository;
mod reset;
mod rollback;
mod security;
mod servers;
mod templates;
mod wal;
mod worktrees;
