//! Bounds: from which size on something is a finding, and how much work an analysis may do.

/// Bounds of an analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Minimum size of the read part of a table, in bytes, for a sequential scan to be a finding. Default: 100 MB.
    pub scan_bytes: u64,
    /// Minimum cost of a statement's plan to be a finding or to get an index. Default: 1,000, about as much as 250 random
    /// pages.
    pub cost: f64,
    /// Minimum number of rows that an index scan must discard in one statement to be a finding. Default: 10,000.
    pub discarded_rows: f64,
    /// Minimum fraction of an index's rows that the scan must discard to be a finding. Default: 0.9.
    pub discarded_fraction: f64,
    /// Minimum size of a sort or a hash table in bytes to be a finding, in addition to the server's `work_mem`.
    /// Default: 32 MB.
    pub spill_bytes: f64,
    /// Minimum number of repetitions for a nested loop to be a finding. Default: 100,000.
    pub loop_rows: f64,
    /// Minimum ratio of a generic plan's cost to the custom plan's to be a finding. Default: 100.
    pub generic_ratio: f64,
    /// OFFSET at which pgfresh estimates the cost of a later page. Default: 100,000.
    pub offset: u64,
    /// Minimum size of a table in pages of 8 KiB to get an index. Default: 1,000.
    pub index_pages: u64,
    /// Minimum fraction of a statement's cost that a suggested index must save. Default: 0.5.
    pub index_gain: f64,
    /// Rise of a statement's cost, as a fraction, at which the index behind it is worth its own place. Default: 0.05.
    pub index_loss: f64,
    /// Maximum number of columns of a suggested index, without INCLUDE. Default: 4.
    pub index_columns: usize,
    /// Maximum number of candidate indexes. Default: 500.
    pub candidates: usize,
    /// Maximum number of value sets that are explained for each normalised statement. Default: 20.
    pub value_sets: usize,
    /// Maximum number of EXPLAINs to choose indexes, in addition to those of the value sets. Default: 10,000.
    pub explains: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            scan_bytes: 100_000_000,
            cost: 1000.0,
            discarded_rows: 10_000.0,
            discarded_fraction: 0.9,
            spill_bytes: 32e6,
            loop_rows: 100_000.0,
            generic_ratio: 100.0,
            offset: 100_000,
            index_pages: 1000,
            index_gain: 0.5,
            index_loss: 0.05,
            index_columns: 4,
            candidates: 500,
            value_sets: 20,
            explains: 10_000,
        }
    }
}
