//! Runs the user's commands. Each of them receives the signals while it runs; in between, signals end pgfresh.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use server::Server;

use crate::cancellation::{SIGNALS, die_by};
use crate::failure::Failure;
use crate::foreground::{self, Ended};

/// Runs the user's commands. Create one for each process. When signals end pgfresh, the guards remove its files.
#[derive(Debug)]
pub(super) struct CommandRunner {
    between_commands: Arc<AtomicBool>,
}

impl CommandRunner {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { between_commands: die_by(&SIGNALS)? })
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, server: &Server, command: Command) -> Result<Ended, Failure> {
        self.between_commands.store(false, Ordering::Relaxed);
        let ended = foreground::run(Some(server), command);
        self.between_commands.store(true, Ordering::Relaxed);
        ended
    }
}
