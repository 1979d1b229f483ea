//! What a database has that its template has not: rows inserted, updated and deleted, sequences, definitions.
//!
//! Makes a [`DatabaseDiff`] from two sessions of a superuser with databases of one cluster's encoding: one that is exactly
//! the template, and one that was used. Both are read in one snapshot each, read-only, and in bounded memory: rows come in
//! order of their primary key as digests, and only those that are shown are read in full. It changes nothing, and leases
//! nothing.
//!
//! ```text
//! relations ── which tables there are, and their keys     stream ── digests of rows, in order ── merge ── what differs
//! catalogs ─── the server's catalogs and their columns    cells ─── the rows that are shown
//! catalog_rows rows of catalogs that differ ── names ── entries, by object ── objects ── definitions that differ
//! ```

mod catalog_rows;
mod catalogs;
mod cells;
mod compare;
mod digest;
mod entries;
mod error;
mod merge;
mod names;
mod objects;
mod outcome;
mod relations;
mod sequences;
mod session;
mod sql;
mod stream;
mod text;

pub use catalogs::NOT_COMPARED;
pub use compare::{DiffLimits, compare};
pub use error::DiffError;
pub use outcome::{
    CellValue, DatabaseDiff, Field, FieldChange, LeftOut, NotCompared, ObjectChange, RowChange, RowCounts,
    SequenceChange, SequenceValue, TableDiff, What,
};
