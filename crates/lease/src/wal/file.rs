//! The files of relations, as the log names them.

/// A relation's file, by the numbers in its path. A relation gets another one when it is rewritten or truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFile {
    /// The tablespace's OID.
    pub tablespace: u32,
    /// The database's OID; 0 for catalogs that all databases share.
    pub database: u32,
    /// What `pg_relation_filenode` returns.
    pub number: u32,
}
