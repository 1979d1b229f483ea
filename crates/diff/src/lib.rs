//! Shows how a database differs from its template, so that a user can see what a test has changed. Covers inserted,
//! updated and deleted rows, sequences and definitions.
//!
//! [`compare`] builds a [`DatabaseDiff`] from two superuser sessions: one in a copy of the template, one in a used
//! database. Both databases must have the same encoding. pgfresh reads each side in one read-only snapshot and in
//! bounded memory. Tables arrive as row digests in the order of their primary key, and pgfresh reads only the rows that
//! the result shows in full. This crate doesn't change or lease any database.
//!
//! ```text
//! relations ── tables and their keys          stream ── digests of rows, in order ── merge ── differing rows
//! catalogs ─── catalogs and their columns     cells ─── the rows to show
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
