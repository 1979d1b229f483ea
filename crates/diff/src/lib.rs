//! Shows how a database differs from its template, so that users can see what a test changed. The differences are
//! inserted, updated and deleted rows, and changed sequences and definitions.
//!
//! [`compare`] builds a [`DatabaseDiff`] from two superuser sessions: one in a copy of the template and one in a used
//! database. Both databases must have the same encoding. pgfresh reads each side in a read-only snapshot, with a
//! bounded amount of memory. It first reads a digest of each row in primary key order. Then it reads only the rows
//! that the result contains, with all of their columns. This crate neither changes nor leases databases.
//!
//! ```text
//! relations ── tables and their keys          stream ── digests of rows, in order ── merge ── differing rows
//! catalogs ─── catalogs and their columns     row_values ── the rows to show
//! catalog_rows differing rows of catalogs ─── names ─── entries, by object ── objects ── differing definitions
//! ```

mod catalog_rows;
mod catalogs;
mod compare;
mod digest;
mod entries;
mod error;
mod merge;
mod names;
mod objects;
mod relations;
mod row_texts;
mod row_values;
mod sequences;
mod session;
mod stream;
mod text;

pub use catalogs::NOT_COMPARED;
pub use compare::{DiffLimits, compare};
pub use error::DiffError;
pub use text::{format_diff, summarize};
