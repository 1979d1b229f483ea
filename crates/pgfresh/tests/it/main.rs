//! Tests the binary, and the crates below it with real servers. There is a module for each command and feature, and
//! CONTRIBUTING.md has an index of them.
//!
//! ```sh
//! cargo test -p pgfresh --test it                  # all
//! cargo test -p pgfresh --test it gateway::        # one module
//! ```
//! All modules run in the same process, and tests in different modules run concurrently. Therefore no test changes the
//! process: its environment, working directory, umask, limits or signal handlers. A test that needs different values
//! starts a child process.
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
// The fleet's machines are network namespaces.
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
