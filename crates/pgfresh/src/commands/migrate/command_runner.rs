//! Runs the user's commands. While a command runs, signals go to the command. Between commands, signals end pgfresh.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use server::Server;

use crate::cancellation::{SIGNALS, die_by};
use crate::failure::Failure;
use crate::foreground::{self, Ended};

/// Runs the user's commands. There must be only one runner in a process. If a signal ends pgfresh, the guards
/// remove its files.
#[derive(Debug)]
pub(super) struct CommandRunner {
    between_commands: Arc<AtomicBool>,
}

impl CommandRunner {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { between_commands: die_by(&SIGNALS)? })
    }

    /// Runs a command until it exits.
    pub(super) fn run(&self, server: &Server, command: Command) -> Result<Ended, Failure> {
        self.between_commands.store(false, Ordering::Relaxed);
        let ended = foreground::run(Some(server), command);
        self.between_commands.store(true, Ordering::Relaxed);
        ended
    }
}
