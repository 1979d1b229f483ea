//! Prepared data directories, named by fingerprint, built once, and the servers that start from them.
//!
//! A [`Recipe`] says how a template is made; its [`Ingredients`] are all that shapes the result, and their fingerprint
//! is its name. A template is built in a run directory of its own, under the same guard as any server, and published
//! into the cache when it is complete. It knows nothing of tests and clients.

mod about;
mod base;
mod build;
mod dump;
mod error;
mod fingerprint;
mod ingredients;
mod inputs;
mod maker;
mod recipe;
mod setup;
mod shelf;

pub use about::About;
pub use build::Outlook;
pub use dump::{DumpError, Roles, import, save};
pub use error::{MakerError, SetupError};
pub use fingerprint::{Builder, Fingerprint};
pub use ingredients::Ingredients;
pub use inputs::InputError;
pub use maker::{Maker, Started, Step, Swept, Template, Wishes, remove_kept, sweep};
pub use recipe::{Recipe, check_name};
pub use shelf::{Shelved, list, select};
