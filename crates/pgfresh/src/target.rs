//! Finds the running server that a command acts on: the server of this run, or else a background server.

use std::path::PathBuf;

use crate::background::{self, About, Found};
use crate::cli::Options;
use crate::control::Control;
use crate::failure::Failure;
use crate::settings::ResolvedSettings;

/// Returns the server of this run, or else the background server for database `name`. Starts the background server if
/// necessary.
pub(crate) fn join(options: &Options, name: Option<&str>) -> Result<Control, Failure> {
    Control::of_this_run_or(|| Ok(background::join_for(&ResolvedSettings::resolve(options)?, name)?.control))
}

/// Finds the server that has the database `name`, without starting one.
pub(crate) fn find(options: &Options, name: &str) -> Result<Control, Failure> {
    Control::of_this_run_or(|| holder_of(&ResolvedSettings::resolve(options)?, name))
}

pub(crate) fn holder_of(settings: &ResolvedSettings, name: &str) -> Result<Control, Failure> {
    let keeper = background::keeper_of(settings, name)?;
    Ok(keeper.map_or_else(|| find_in_background(settings), Ok)?.control)
}

fn find_in_background(settings: &ResolvedSettings) -> Result<Found, Failure> {
    let found = background::running(settings)?.into_iter().find(|found| found.about.is_usual());
    found.ok_or_else(background::none_runs)
}

/// The servers that a command acts on.
pub(crate) struct Servers {
    /// The server of this run, or else the project's background server.
    pub(crate) control: Control,
    /// The server's description, if it runs in the background.
    pub(crate) about: Option<About>,
    pub(crate) log_file: Option<PathBuf>,
    /// The project's other servers: named servers, and those that keep databases of failed tests.
    pub(crate) others: Vec<Found>,
}

impl Servers {
    pub(crate) fn find(options: &Options) -> Result<Self, Failure> {
        if let Some(control) = Control::of_this_run()? {
            return Ok(Self { control, about: None, log_file: None, others: Vec::new() });
        }
        let mut found = background::running(&ResolvedSettings::resolve(options)?)?.into_iter();
        let Found { about, control, log_file } = found.next().ok_or_else(background::none_runs)?;
        Ok(Self { control, about: Some(about), log_file, others: found.collect() })
    }
}
