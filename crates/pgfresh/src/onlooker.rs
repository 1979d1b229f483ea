//! Whoever waits for a measurement: sees how far it is, and may have seen enough.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::runner::Observer;
use signal_hook::consts::SIGINT;

use crate::cli::Options;
use crate::failure::Failure;

/// Shows what is measured, and takes Ctrl-C for "that is enough". A second one ends us at once.
pub(crate) struct Onlooker {
    stop: Arc<AtomicBool>,
    shows: bool,
}

impl Onlooker {
    pub(crate) fn listen(options: &Options) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        // In this order: the first signal finds the flag down and puts it up, the second finds it up.
        signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&stop)))
            .map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
        Ok(Self { stop, shows: !options.quiet && io::stderr().is_terminal() })
    }

    pub(crate) fn finish(&self) {
        if self.shows {
            eprint!("\r\x1b[K");
        }
    }

    pub(crate) fn has_seen_enough(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn show(&self, what: &str) {
        if self.shows {
            eprint!("\r\x1b[K{what}; Ctrl-C shows what was measured so far");
        }
    }
}

impl Observer for Onlooker {
    fn after_round(&mut self, done: u32, of: u32) {
        self.show(&format!("round {done} of {of}"));
    }

    fn wants_to_stop(&self) -> bool {
        self.has_seen_enough()
    }
}

impl doctor::Onlooker for Onlooker {
    fn begins(&self, what: &str) {
        self.show(&format!("measuring {what}"));
    }

    fn wants_to_stop(&self) -> bool {
        self.has_seen_enough()
    }
}
