//! Making a cluster with `initdb`: always the same one, whatever the machine's locale.

use std::fs;
use std::process::Stdio;

use storage::{Account, Attempt};

use crate::error::InitdbError;
use crate::{Guard, Installation, log};

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";

/// The words that initdb is called with; they belong into the cluster's fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initdb(Vec<String>);

impl Initdb {
    /// What `installation` needs to make our kind of cluster: UTF-8, code-point order, no flush, no checksums.
    ///
    /// From 17 the locale is the server's own. Before, it is the C library's C.UTF-8, which every system has that is
    /// not older than 2021; `libc_has_utf8` false means C, whose UTF-8 knows upper and lower case of ASCII only.
    #[must_use]
    pub fn words(installation: &Installation, libc_has_utf8: bool) -> Self {
        let mut words = vec!["--username", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-sync"];
        let major = installation.version().major;
        if major >= 17 {
            words.extend(["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]);
        } else {
            words.push(if libc_has_utf8 { "--locale=C.UTF-8" } else { "--locale=C" });
        }
        if major >= 18 {
            words.push("--no-data-checksums");
        }
        Self(words.into_iter().map(str::to_owned).collect())
    }

    /// The words.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.0
    }

    /// Makes a cluster in the data directory of what `guard` guards.
    pub fn run(
        &self,
        installation: &Installation,
        account: &Account,
        guard: &Guard,
    ) -> Result<(), InitdbError> {
        let run = guard.run();
        let output = run.create_file("log", account)?;
        let lock = run.server_lock()?;
        let mut command = installation.command("initdb", account);
        command.args(&self.0).arg("--pgdata").arg(run.data());
        let second = output.try_clone().attempt("duplicate", &run.log())?;
        command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
        // With the server's lock, so that the guard finds it and its children.
        sys::new_session(&mut command);
        sys::inherit(&mut command, vec![lock.descriptor().attempt("duplicate", &run.log())?]);
        let mut child = command.spawn().attempt("run", &installation.bin().join("initdb"))?;
        drop((command, lock));
        let status = child.wait().attempt("wait for", &installation.bin().join("initdb"))?;
        if status.success() {
            fs::remove_file(run.log()).attempt("remove", &run.log())?;
            return Ok(());
        }
        let last_words = log::last_words(&run.log()).unwrap_or_else(|| "(nothing)".to_owned());
        Err(InitdbError::Failed { status, last_words })
    }
}
