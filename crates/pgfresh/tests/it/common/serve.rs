//! Running `pgfresh serve` and its address. Test modules add requests.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use super::{Scene, TRANSCRIBE, end_of};

/// Running `pgfresh serve`. Dropping it ends pgfresh, which must not leave anything behind.
pub(crate) struct Serve {
    pub(crate) child: Child,
    /// Line that pgfresh printed when it was ready.
    pub(crate) ready: Value,
    ended: bool,
    /// Scene, which is dropped last and checks that nothing is left.
    _scene: Scene,
}

impl Serve {
    pub(crate) fn at<S: AsRef<OsStr>>(scene: Scene, options: impl IntoIterator<Item = S>) -> Self {
        let command = scene.pgfresh(["serve", "--json"]);
        Self::begin(scene, command, options)
    }

    /// Like [`Self::at`], but when a debug build ends, it writes the transcripts of all sessions to `folder`.
    pub(crate) fn transcribed<S: AsRef<OsStr>>(
        scene: Scene,
        options: impl IntoIterator<Item = S>,
        folder: &Path,
    ) -> Self {
        let mut command = scene.pgfresh(["serve", "--json"]);
        command.env(TRANSCRIBE, folder);
        Self::begin(scene, command, options)
    }

    /// Starts `command`, which runs `pgfresh serve --json` with the arguments that it receives.
    pub(crate) fn begin<S: AsRef<OsStr>>(
        scene: Scene,
        mut command: Command,
        options: impl IntoIterator<Item = S>,
    ) -> Self {
        command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, ready: serde_json::from_str(&line).unwrap(), ended: false, _scene: scene }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ready["port"])
    }

    /// Returns the secret that is both password and token.
    pub(crate) fn secret(&self) -> &str {
        self.ready["password"].as_str().unwrap()
    }

    /// Ends pgfresh. Returns whether it succeeded.
    pub(crate) fn end(&mut self) -> bool {
        self.ended = true;
        drop(self.child.stdin.take());
        end_of(&mut self.child, "its standard input is closed").success()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if !thread::panicking() && !self.ended {
            assert!(self.end(), "serve ended with an error");
        }
    }
}
