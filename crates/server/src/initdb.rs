//! Creates clusters with `initdb`. The result is always identical, regardless of the machine's locale.

use std::fs;
use std::process::{Command, Stdio};

use storage::{Account, Attempt};

use crate::address::SUPERUSER;
use crate::error::InitdbError;
use crate::major::Major;
use crate::trim::CHANGES_NAME;
use crate::{Guard, Installation, log};

/// initdb's error message for a user without a name. Servers and clients don't need a name. Source:
/// `get_user_name` in `src/common/username.c`.
const NO_USER_NAME: &str = "could not look up effective user";

/// Arguments for initdb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initdb {
    words: Vec<&'static str>,
    locales: &'static [&'static [&'static str]],
}

impl Initdb {
    /// Returns the arguments for pgfresh's clusters. They use UTF-8, sort text by code point, have no
    /// checksums, and aren't flushed to disk.
    ///
    /// Version 17 and later use the server's built-in locale. Earlier versions use the C library's locale
    /// C.UTF-8, which some C libraries lack (glibc before 2.35 in some distributions, for example). With such
    /// a library, initdb uses the locale C, which converts the case of ASCII letters only.
    #[must_use]
    pub fn of(installation: &Installation) -> Self {
        let mut words = vec!["--username", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-sync"];
        let major = Major(installation.version().major);
        if major.has_checksums_by_default() {
            words.push("--no-data-checksums");
        }
        let locales: &[&[&str]] = if major.has_builtin_locale() {
            &[&["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]]
        } else {
            &[&["--locale=C.UTF-8"], &["--locale=C"]]
        };
        Self { words, locales }
    }

    /// Returns everything that determines the cluster, for its fingerprint. This includes the name of the
    /// changes that pgfresh makes after initdb.
    pub fn fingerprint_parts(&self) -> impl Iterator<Item = &str> {
        self.words.iter().chain(self.locales.iter().copied().flatten()).copied().chain([CHANGES_NAME])
    }

    /// Creates a cluster in the data directory of `guard`.
    ///
    /// # Errors
    /// Returns [`InitdbError`] if `initdb` fails, takes too long or finds no entry for the account in
    /// `/etc/passwd`. The error of a program contains the last line of its output.
    pub fn run(
        &self,
        installation: &Installation,
        account: &Account,
        guard: &Guard,
    ) -> Result<(), InitdbError> {
        let mut result = Ok(());
        for locale in self.locales {
            result = self.attempt(locale, None, installation, account, guard);
            if let (true, Some(alias)) = (lacks_user_name(&result), Account::named_alias()) {
                // If this fails because the machine forbids user namespaces, return the first error, which
                // contains better advice.
                match self.attempt(locale, Some(alias), installation, account, guard) {
                    Err(InitdbError::File(_)) => {}
                    other => result = other,
                }
            }
            // Retry only if the locale was the problem. initdb has already removed its files.
            match &result {
                Err(InitdbError::Failed { last_line, .. }) if last_line.contains("locale") => {}
                _ => break,
            }
        }
        if lacks_user_name(&result) {
            return Err(InitdbError::Nameless { uid: account.uid });
        }
        result
    }

    fn attempt(
        &self,
        locale: &[&str],
        alias: Option<(u32, u32)>,
        installation: &Installation,
        account: &Account,
        guard: &Guard,
    ) -> Result<(), InitdbError> {
        let run = guard.run();
        let program = installation.bin().join("initdb");
        let output = run.create_file("log", account)?;
        run.create_data(account)?;
        let guarded = guard.guarded_command()?;
        let mut command = guarded.command(installation, "initdb", account)?;
        if let Some((uid, gid)) = alias {
            sys::run_in_user_namespace(&mut command, uid, gid);
        }
        command.args(&self.words).args(locale).arg("--pgdata").arg(run.data());
        avoid_posix_segments(installation, &mut command);
        let second = output.try_clone().attempt("duplicate", &run.log())?;
        command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
        let child = command.spawn().attempt("run", &program);
        drop((command, guarded));
        let child = child.inspect_err(|_| drop(fs::remove_file(run.log())))?;
        log::wait("initdb", child, run)
    }
}

/// Prevents initdb's backends from leaving shared memory in `/dev/shm` when they are killed.
///
/// By default, initdb tries POSIX segments first. From version 16 on, an option makes its backends use files
/// in the data directory instead. Earlier versions fall back to System V segments if POSIX segments don't
/// work, and pgfresh can find and remove a dead process's System V segments. None of this affects the
/// resulting cluster, because pgfresh replaces the configuration at each boot.
fn avoid_posix_segments(installation: &Installation, command: &mut Command) {
    if Major(installation.version().major).has_initdb_settings() {
        command.args(["-c", "dynamic_shared_memory_type=mmap"]);
    }
    sys::refuse_posix_segments(command);
}

fn lacks_user_name(result: &Result<(), InitdbError>) -> bool {
    matches!(result, Err(InitdbError::Failed { last_line, .. }) if last_line.contains(NO_USER_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::Stub;

    #[test]
    fn initdb_that_never_ends_is_ended() {
        let stub = Stub::with_initdb("serve", "echo waiting; exec sleep 600");
        let guard = stub.guard();
        let initdb = Initdb::of(stub.installation());
        let error = initdb.run(stub.installation(), &stub.account, &guard).unwrap_err();
        assert_eq!(error.to_string(), "could not create a cluster: initdb was still running after 1 s");
        assert_eq!(error.detail().unwrap(), "Last line of the output: waiting");
        drop(guard);
        assert!(crate::stub::left_in(stub.place.root()).is_empty());
    }
}
