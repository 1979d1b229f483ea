//! Runs `PostgreSQL` servers that pgfresh owns. This crate finds the binaries, writes the settings, and
//! starts and stops the server.
//!
//! A caller finds an [`Installation`], selects [`Settings`], creates a [`Guard`] (a process that cleans up
//! after pgfresh) for a run directory, and starts a [`Server`] in it. The server only listens on a Unix
//! socket in its private directory. This crate doesn't depend on templates or databases.

mod address;
mod admin;
mod apt;
mod boot;
mod connection_string;
mod downloads;
mod error;
mod extension;
mod extension_name;
mod fetch;
mod guard;
mod initdb;
mod installation;
mod internal_connections;
mod libpq;
mod locate;
mod log;
mod loopback;
mod major;
mod orphans;
mod package;
mod package_tool;
mod preset;
mod printable;
mod replication;
mod session_settings;
mod settings;
mod shim;
mod stop;
#[cfg(test)]
mod stub;
mod trim;
mod version;

pub use address::{Address, SOCKET, SUPERUSER, percent_encode};
pub use admin::{AdminConnection, ErrorNotes, Rows, SessionError, identifier, literal};
pub use boot::{Data, Phases, RestartFailure, Server, StartOptions};
pub use connection_string::{ConnectionString, ConnectionStringError, percent_decode};
pub use error::{
    FetchError, InitdbError, InstallationError, SettingError, StartError, StopError, time_after,
};
pub use extension::{ExtensionSource, add_extensions, expects_preload, extension_advice, withdraw_extension};
pub use extension_name::{ExtensionName, ParseExtensionNameError};
pub use fetch::{Download, discard, fetch};
pub use guard::{Guard, GuardedCommand, guard_main, sweep};
pub use initdb::Initdb;
pub use installation::Installation;
pub use locate::{Found, find, list};
pub use log::end_of_log;
pub use loopback::{LoopbackEncryption, LoopbackListener};
pub use major::{MAJORS, Major, NEWEST_PACKAGED};
pub use package::{Package, PackageTool};
pub use preset::{ParsePresetError, Preset};
pub use printable::{printable, printable_lines};
pub use session_settings::{Setting, admin_params, set_admin_settings};
pub use settings::Settings;
pub use trim::{discard_statistics, trim};
pub use version::{ParseVersionError, Version, VersionRequest};
