//! Builds templates, so that each migration runs only once instead of for every server. A template is a prepared data
//! directory, named by its fingerprint. This crate also starts servers from templates.
//!
//! A [`TemplateSpec`] describes how to build a template. Its [`FingerprintInputs`] are everything that
//! influences the result, and their fingerprint is the template's name. A build runs in a private run
//! directory, under a guard (a process that cleans up after pgfresh), just like every server. It
//! publishes the complete template in the cache. This crate doesn't deal with tests or clients.

mod base;
mod build;
mod build_plan;
mod cached;
mod database_copy;
mod database_properties;
mod description;
mod dump;
mod error;
mod exchange;
mod fingerprint;
mod fingerprint_inputs;
mod incremental;
mod inputs;
mod inspection_commands;
mod provisioner;
mod setup;
mod source;
mod spec;
mod start;

pub use build::TemplateStatus;
pub use build_plan::{BuildPlan, ParseStepsError, Steps};
pub use cached::{CachedTemplate, list, select};
pub use database_copy::{complete_copy, create_copy, end_sessions};
pub use description::EntryDescription;
pub use dump::{DumpError, DumpFile, import, save};
pub use error::{KeptServer, ProvisionError, SetupError};
pub use fingerprint::{Builder, Fingerprint};
pub use fingerprint_inputs::FingerprintInputs;
pub use inputs::{InputError, matching_files};
pub use provisioner::{Provisioner, ServerOptions, Step, Swept, Template, remove_kept, sweep, sweep_runs};
pub use source::{FetchProgress, FetchResult, SourceError, TemplateSource};
pub use spec::{PREFIX, TemplateNameError, TemplateSpec, check_name};
pub use start::Started;
