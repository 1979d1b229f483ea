//! Finds the running server that a command acts on: this run's server or a background server.

use std::path::PathBuf;

use crate::background::{self, RunningServer, ServerInfo};
use crate::context::Context;
use crate::control::Control;
use crate::failure::Failure;

/// Returns this run's server. Outside of a run, returns the background server for database `name`, starting it if
/// necessary.
pub(crate) fn join(context: &Context, name: Option<&str>) -> Result<Control, Failure> {
    Control::of_this_run_or(|| Ok(background::join_for(context, name)?.control))
}

/// Finds the server that has the database `name`, without ever starting one.
pub(crate) fn find(context: &Context, name: &str) -> Result<Control, Failure> {
    Control::of_this_run_or(|| holder_of(context, name))
}

pub(crate) fn holder_of(context: &Context, name: &str) -> Result<Control, Failure> {
    let keeper = background::keeper_of(context, name)?;
    Ok(keeper.map_or_else(|| find_in_background(context), Ok)?.control)
}

fn find_in_background(context: &Context) -> Result<RunningServer, Failure> {
    let found = background::running(context)?.into_iter().find(|found| found.about.is_usual());
    found.ok_or_else(background::none_runs)
}

/// The servers a command acts on.
pub(crate) struct Servers {
    /// Server of this run, or the project's background server outside of a run.
    pub(crate) control: Control,
    /// The background server's description. `None` within a run.
    pub(crate) about: Option<ServerInfo>,
    pub(crate) log_file: Option<PathBuf>,
    /// The project's other servers: named servers, and servers that hold databases of failed tests.
    pub(crate) others: Vec<RunningServer>,
}

impl Servers {
    pub(crate) fn find(context: &Context) -> Result<Self, Failure> {
        if let Some(control) = Control::of_this_run()? {
            return Ok(Self { control, about: None, log_file: None, others: Vec::new() });
        }
        let mut found = background::running(context)?.into_iter();
        let RunningServer { about, control, log_file } = found.next().ok_or_else(background::none_runs)?;
        Ok(Self { control, about: Some(about), log_file, others: found.collect() })
    }
}
