//! The files of relations, as the log names them.

/// File of a relation, by the numbers in its path. A relation gets another file when the server rewrites or truncates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFile {
    /// Oid of the tablespace.
    pub tablespace: u32,
    /// Oid of the database; 0 for catalogs that all databases share.
    pub database: u32,
    /// File number, as `pg_relation_filenode` returns it.
    pub number: u32,
}
