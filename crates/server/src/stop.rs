//! Stops a server. A server with disposable data is stopped immediately. If the data becomes a template or is
//! persistent, the server is shut down cleanly.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use storage::{Attempt, BackgroundRemoval, FileError};
use sys::{ProcessHandle, Signal};

use crate::error::StopError;
use crate::guard::account_of;
use crate::{Guard, Server, log};

/// How long pgfresh itself removes files after the server has exited. The guard removes the rest.
const OWN_REMOVAL_TIME: Duration = Duration::from_millis(30);

impl Server {
    /// Stops the server immediately and removes everything. Returns how long each of the two steps took. If
    /// the data is persistent, shuts the server down cleanly and retains the data.
    ///
    /// When this returns, the guard might still be removing a large directory.
    ///
    /// # Errors
    /// Returns an error if pgfresh can't observe that the processes have ended. Disposable data is removed
    /// anyway.
    pub fn stop(mut self) -> Result<(Duration, Duration), FileError> {
        let begun = Instant::now();
        if self.run().persistent().is_some() {
            self.end(Signal::INT, self.timeouts.clean_stop)?;
            let stopped = begun.elapsed();
            drop(self.guard.take());
            return Ok((stopped, begun.elapsed().saturating_sub(stopped)));
        }
        self.signal(Signal::QUIT);
        // Remove most of the files while the processes are exiting.
        let removing = BackgroundRemoval::begin(&self.run().data(), "base");
        self.wait_for_end(self.timeouts.immediate_stop)?;
        let stopped = begun.elapsed();
        removing.finish(OWN_REMOVAL_TIME);
        drop(self.guard.take());
        Ok((stopped, begun.elapsed().saturating_sub(stopped)))
    }

    /// Shuts the server down cleanly, so that no committed data is lost, and retains its run directory.
    /// Returns the directory's new path.
    ///
    /// # Errors
    /// Returns an error if pgfresh can't observe that the processes have ended, or can't rename the directory.
    /// Everything is removed in that case.
    #[allow(clippy::missing_panics_doc)]
    pub fn keep(mut self) -> Result<PathBuf, FileError> {
        self.end(Signal::INT, self.timeouts.clean_stop)?;
        self.guard.take().expect("held until dropped").keep()
    }

    /// Shuts the server down cleanly and returns the guard of its data directory.
    ///
    /// # Errors
    /// Returns an error if the server didn't exit in time or reported an error. In that case, everything has
    /// been removed.
    #[allow(clippy::missing_panics_doc)]
    pub fn shut_down(mut self) -> Result<Guard, StopError> {
        let log = self.run().log();
        match self.end(Signal::INT, self.timeouts.clean_stop)? {
            Some(status) if status.success() => Ok(self.guard.take().expect("held until dropped")),
            Some(status) => {
                Err(StopError::Unclean { status, log_line: log::reason_line(&log, self.log_before) })
            }
            None => Err(StopError::TooLate { after: self.timeouts.clean_stop }),
        }
    }

    /// Shuts the server down so that it can be restarted on the same data, and returns the guard. If the
    /// shutdown isn't clean, the data is in the same state as after a crash.
    ///
    /// # Errors
    /// Returns an error if pgfresh can't observe that the processes have ended. Everything is removed in that
    /// case.
    #[allow(clippy::missing_panics_doc)]
    pub fn halt(mut self) -> Result<Guard, FileError> {
        self.signal(Signal::INT);
        self.resume();
        self.wait_for_end(self.timeouts.halt)?;
        Ok(self.guard.take().expect("held until dropped"))
    }

    /// Stops the server immediately, without a checkpoint, and returns the guard. The data is then in the
    /// same state as after a crash, and the next start recovers it.
    ///
    /// # Errors
    /// Returns an error if pgfresh can't observe that the processes have ended. Everything is removed in that
    /// case.
    #[allow(clippy::missing_panics_doc)]
    pub fn crash(mut self) -> Result<Guard, FileError> {
        self.end(Signal::QUIT, self.timeouts.immediate_stop)?;
        Ok(self.guard.take().expect("held until dropped"))
    }

    /// Sends `signal` to the postmaster and waits for all its processes to exit. If they are still running
    /// after `timeout`, kills them and returns `None`.
    fn end(&mut self, signal: Signal, timeout: Duration) -> Result<Option<ExitStatus>, FileError> {
        self.signal(signal);
        self.wait_for_end(timeout)
    }

    fn signal(&self, signal: Signal) {
        // A stopped postmaster (SIGSTOP) handles the signal only after it continues, so continue it.
        for signal in [signal, Signal::CONT] {
            if let Err(error) = self.handle.signal(signal) {
                tracing::debug!(%error, ?signal, "could not signal the postmaster");
            }
        }
    }

    /// Resumes the server's stopped processes (SIGSTOP). A stopped process neither exits nor responds.
    pub fn resume(&self) {
        let children = sys::children_of(self.pid()).into_iter().filter_map(ProcessHandle::of_number);
        for error in children.map(|child| child.signal(Signal::CONT)).filter_map(Result::err) {
            tracing::debug!(%error, "could not resume a process of the server");
        }
        self.signal(Signal::CONT);
    }

    /// Waits for the server to exit. This is the second half of [`Self::end`].
    fn wait_for_end(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, FileError> {
        let postmaster = Path::new("postmaster");
        let ended = sys::wait_readable(&self.handle, timeout).attempt("wait for", postmaster)?;
        // The postmaster waits for its children, but not for programs started by SQL. The thread in `orphans`
        // soon terminates those programs, and this function terminates the rest.
        let gone = ended
            && sys::wait_readable(&self.alive, self.timeouts.stragglers).attempt("wait for", postmaster)?;
        if !gone {
            let lock = self.run().server_lock_path();
            let lock = lock.canonicalize().attempt("resolve", &lock)?;
            let account = account_of(self.run().path());
            sys::end_holders(&lock, account).attempt("stop the holders of", &lock)?;
        }
        let status = self.postmaster.wait().attempt("wait for", postmaster)?;
        // Wait for the thread. If it were still running, it would also terminate the next server on the same
        // data.
        if self.orphans.take().is_some_and(|orphans| orphans.join().is_err()) {
            tracing::error!("the thread that ends what outlives a postmaster has panicked");
        }
        Ok(ended.then_some(status))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.guard.is_some()
            && let Err(error) = self.end(Signal::QUIT, self.timeouts.immediate_stop)
        {
            tracing::warn!(%error, "could not stop a server");
        }
    }
}

#[cfg(test)]
mod tests;
