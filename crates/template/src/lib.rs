//! Templates: prepared data directories, built once and named by fingerprint, and the servers that start from them.
//!
//! A [`TemplateSpec`] describes how to make a template. Its [`FingerprintInputs`] are all that shapes the result, and
//! their fingerprint is the template's name. A build runs in a private run directory, under a guard like each server,
//! and publishes the complete template into the cache. This crate does not depend on tests or clients.

mod about;
mod base;
mod build;
mod cached;
mod database_copy;
mod database_properties;
mod dump;
mod error;
mod exchange;
mod fingerprint;
mod fingerprint_inputs;
mod incremental;
mod inputs;
mod kept;
mod provisioner;
mod setup;
mod source;
mod spec;
mod start;
mod steps;

pub use about::About;
pub use build::TemplateStatus;
pub use cached::{CachedTemplate, list, select};
pub use database_copy::{complete_copy, create_copy, end_sessions};
pub use dump::{DumpError, DumpFile, import, save};
pub use error::{KeptServer, ProvisionError, SetupError};
pub use fingerprint::{Builder, Fingerprint};
pub use fingerprint_inputs::FingerprintInputs;
pub use inputs::InputError;
pub use provisioner::{Provisioner, ServerOptions, Step, Swept, Template, remove_kept, sweep, sweep_runs};
pub use source::{SeekStep, Sought, TemplateSource};
pub use spec::{PREFIX, TemplateSpec, check_name};
pub use start::Started;
pub use steps::{BuildPlan, Steps};
