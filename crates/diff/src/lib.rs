//! What a database has that its template has not: rows inserted, updated and deleted, sequences, definitions.
//!
//! Makes a [`DatabaseDiff`] from two sessions of a superuser with databases of one cluster's encoding: one that is exactly
//! the template, and one that was used. Both are read in one snapshot each, read-only, and in bounded memory: rows come in
//! order of their primary key as digests, and only those that are shown are read in full. It changes nothing, and leases
//! nothing.
//!
//! ```text
//! relations ── which tables there are, and their keys     stream ── digests of rows, in order ── merge ── what differs
//! objects ──── definitions                                cells ─── the rows that are shown
//! ```

mod cells;
mod compare;
mod digest;
mod error;
mod merge;
mod objects;
mod outcome;
mod relations;
mod sequences;
mod session;
mod sql;
mod stream;
mod text;

pub use compare::{DiffLimits, compare};
pub use error::DiffError;
pub use outcome::{
    CellValue, DatabaseDiff, Field, FieldChange, LeftOut, NotCompared, ObjectChange, RowChange, RowCounts,
    SequenceChange, SequenceValue, TableDiff, What,
};
