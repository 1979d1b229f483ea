//! Tests old code on the migrated database, by running the older revision's suite there.
//!
//! Between a migration and the deployment of the new code, the old code works with the new schema. If the suite fails,
//! it also runs on the database before the migration, so that failures that already existed don't count.

mod failures;

use std::ffi::OsString;
use std::path::Path;

use lease::Isolation;
use migrations::SuiteOutcome;
use server::LoopbackListener;
use storage::Attempt;
use template::Started;

use self::failures::Failures;
use super::base::Base;
use super::command_runner::CommandRunner;
use super::migration_command::MigrationCommand;
use crate::context::Context;
use crate::failed_tests::failed_tests;
use crate::failure::Failure;
use crate::foreground::Ended;
use crate::lifecycle;
use crate::notice::notice;
use crate::output_copy::OutputCopy;
use crate::progress;
use crate::service::{ServeOptions, Service};
use crate::user_command;
use crate::variable::Variable;

/// The older revision's suite, with everything needed to run it.
#[derive(Debug)]
pub(super) struct OldCode<'a> {
    pub(super) context: &'a Context,
    pub(super) base: &'a Base,
    pub(super) runner: &'a CommandRunner,
    pub(super) command: &'a [OsString],
    pub(super) env: &'a [Variable],
}

/// One run of the suite.
struct SuiteRun {
    ended: Ended,
    failures: Failures,
    failed_tests: Vec<String>,
}

impl OldCode<'_> {
    /// Runs the suite on a database migrated by `migration`. Returns `None` if a signal ended the suite.
    pub(super) fn try_on(&self, migration: &MigrationCommand) -> Result<Option<SuiteOutcome>, Failure> {
        let command = user_command::to_line(self.command);
        let revision = &self.base.revision.name;
        self.announce(&format!("running {command} of {revision} on the migrated database"));
        let after = self.run(Some(migration))?;
        if after.ended.interrupted {
            return Ok(None);
        }
        let mut outcome = SuiteOutcome { command, exit_code: after.ended.code, ..SuiteOutcome::default() };
        if outcome.exit_code == 0 {
            return Ok(Some(outcome));
        }
        self.announce("it fails; running it on the database before the migration");
        let before = self.run(None)?;
        if before.ended.interrupted {
            return Ok(None);
        }
        outcome.exit_code_before = Some(before.ended.code);
        let is_new = |(key, _): &(_, _)| !before.failures.contains_key(key);
        outcome.failures = after.failures.into_iter().filter(is_new).map(|(_, failure)| failure).collect();
        let is_new = |test: &String| !before.failed_tests.contains(test);
        outcome.failed_tests = after.failed_tests.into_iter().filter(is_new).collect();
        Ok(Some(outcome))
    }

    fn announce(&self, sentence: &str) {
        if !self.context.verbosity.is_quiet() {
            notice!("pgfresh: {sentence}");
        }
    }

    /// Runs the suite on a server with the older template. With `migration`, migrates the template's database first.
    fn run(&self, migration: Option<&MigrationCommand>) -> Result<SuiteRun, Failure> {
        let mut options = ServeOptions::new(self.base.context.settings()?)?;
        if options.isolation == Isolation::Server {
            // Additional servers would start from the template in its state before the migration, so use
            // clones instead.
            options.isolation = Isolation::Clone;
        }
        let provisioner = &self.base.provisioner;
        let mut started = provisioner.start(&progress::announce(self.context.verbosity))?;
        if let Some(migration) = migration {
            self.migrate(&mut started, migration)?;
        }
        let service = Service::open(provisioner, started, options)?;
        let transcription = service.gateway.transcribe();
        let mut command = user_command::command(self.command, self.env, &service, &provisioner.installation);
        if let Some(folder) =
            self.base.checkout.path_of(&self.base.repository, &crate::settings::working_directory()?)
        {
            command.current_dir(folder);
        }
        let output = OutputCopy::of(&mut command, true)?;
        let ended = self.runner.run(&service.server, command);
        let output = output.end();
        let ended = ended?;
        let failures = failures::find(&transcription.finish());
        lifecycle::stop(self.context, service)?;
        Ok(SuiteRun { ended, failures, failed_tests: failed_tests(&output).into_iter().collect() })
    }

    /// Migrates the template's database on the new server.
    fn migrate(&self, started: &mut Started, migration: &MigrationCommand) -> Result<(), Failure> {
        // The session would prevent copies of the database. Drop the entry, too, because the database will no longer
        // equal the cached template.
        (started.session, started.entry) = (None, None);
        let listener =
            LoopbackListener::open(&started.server, None).attempt("listen on", Path::new("127.0.0.1"))?;
        let address = listener.as_ref().map(|listener| listener.address(&started.database));
        let address = address.unwrap_or_else(|| started.server.address(&started.database));
        let command = migration.at(&address, self.env, &self.base.provisioner.installation);
        match self.runner.run(&started.server, command)?.code {
            0 => Ok(()),
            code => {
                let failure =
                    Failure::new(format!("the second run of the migration failed with exit code {code}"));
                Err(failure.exit_with(code))
            }
        }
    }
}
