//! Prepared data directories, named by fingerprint, built once, and the servers that start from them.
//!
//! A template is built in a run directory of its own, under the same guard as any server, and published into the cache
//! when it is complete. It knows nothing of tests and clients.

mod base;
mod fingerprint;
mod maker;

pub use fingerprint::{Builder, Fingerprint};
pub use maker::{Maker, MakerError, Started, Step, Swept, Template, Wishes, remove_kept, sweep};
