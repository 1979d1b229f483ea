//! Runs a server on a copy of a template. Commands connect to this server directly instead of through a gateway.

use std::path::Path;
use std::process::ExitCode;

use server::{AdminConnection, LoopbackListener, Server};
use storage::Attempt;
use template::{Provisioner, Started, complete_copy, create_copy, end_sessions};

use super::command_runner::CommandRunner;
use super::migration_command::MigrationCommand;
use crate::context::Context;
use crate::failure::Failure;
use crate::foreground::Ended;
use crate::lifecycle;
use crate::progress;
use crate::terminal_progress::INTERRUPTED;
use crate::variable::Variable;

/// A server with a template's databases.
#[derive(Debug)]
pub(super) struct DirectServer<'a> {
    provisioner: &'a Provisioner,
    server: Server,
    /// TCP port for programs that can't use a Unix socket.
    listener: Option<LoopbackListener>,
    /// The template's database.
    pub(super) database: String,
}

/// Outcome of a command that must succeed.
pub(super) enum Success {
    Succeeded,
    /// A signal or a failure stopped the command, so pgfresh must exit with this code.
    Stopped(ExitCode),
}

impl<'a> DirectServer<'a> {
    pub(super) fn start(context: &Context, provisioner: &'a Provisioner) -> Result<Self, Failure> {
        lifecycle::sweep(context, provisioner);
        let started = provisioner.start(&progress::announce(context.verbosity))?;
        lifecycle::report_start(context, provisioner, &started);
        let Started { server, session, database, .. } = started;
        // Close the session, because an open session would prevent commands from renaming or copying the database.
        drop(session);
        let listener = LoopbackListener::open(&server, None).attempt("listen on", Path::new("127.0.0.1"))?;
        Ok(Self { provisioner, server, listener, database })
    }

    /// Runs a command on the template's database. A failure is reported under `name`.
    pub(super) fn run(
        &self,
        runner: &CommandRunner,
        name: &str,
        command: &MigrationCommand,
        env: &[Variable],
    ) -> Result<Success, Failure> {
        let address = self.listener.as_ref().map(|listener| listener.address(&self.database));
        let address = address.unwrap_or_else(|| self.server.address(&self.database));
        let command = command.at(&address, env, &self.provisioner.installation);
        let Ended { code, interrupted } = runner.run(&self.server, command)?;
        match code {
            0 if interrupted => Ok(Success::Stopped(ExitCode::from(INTERRUPTED))),
            code if interrupted => Ok(Success::Stopped(ExitCode::from(code))),
            0 => Ok(Success::Succeeded),
            code => Err(Failure::new(format!("{name} failed with exit code {code}")).exit_with(code)),
        }
    }

    /// Copies the template's database, ending sessions that the command left open.
    pub(super) fn copy_to(&self, name: &str) -> Result<(), Failure> {
        let major = self.provisioner.installation.version().major;
        let mut session = self.session("postgres")?;
        for sql in [
            end_sessions(&self.database),
            create_copy(&self.database, name, major),
            complete_copy(&self.database, name),
        ] {
            session.query(&sql).map_err(server::StartError::from)?;
        }
        Ok(())
    }

    /// Opens a session as the superuser.
    pub(super) fn session(&self, database: &str) -> Result<AdminConnection, Failure> {
        Ok(self.server.session(database)?)
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        drop(self.listener);
        self.server.stop()?;
        Ok(())
    }
}
