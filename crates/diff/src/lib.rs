//! Differences of a database from its template: inserted, updated and deleted rows, sequences, definitions.
//!
//! [`compare`] makes a [`DatabaseDiff`] from two superuser sessions with databases of one encoding: a copy of the
//! template and a used database. It reads each in one read-only snapshot and in bounded memory. Rows arrive as
//! digests in the order of their primary key, and pgfresh reads only the rows to show in full. This crate changes
//! nothing and leases nothing.
//!
//! ```text
//! relations ── tables and their keys          stream ── digests of rows, in order ── merge ── differing rows
//! catalogs ─── catalogs and their columns     cells ─── the rows to show
//! catalog_rows differing rows of catalogs ─── names ─── entries, by object ── objects ── differing definitions
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
