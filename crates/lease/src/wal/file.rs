//! Identifies the files of relations in the same way as the log.

/// A relation's file, identified by the numbers in its path. A relation receives a new file when the server rewrites or truncates
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFile {
    /// Oid of the tablespace.
    pub tablespace: u32,
    /// Oid of the database. It is 0 for catalogs that all databases share.
    pub database: u32,
    /// File number, as `pg_relation_filenode` returns it.
    pub number: u32,
}
