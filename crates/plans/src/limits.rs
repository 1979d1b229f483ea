//! Thresholds that determine what counts as a finding, and limits on the work of an analysis.

/// Thresholds and work limits of an analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// A sequential scan that reads fewer bytes isn't a finding. Default: 100 MB.
    pub scan_bytes: u64,
    /// A statement whose plan costs less gets neither findings nor indexes. Default: 1,000, the cost of reading 250
    /// random pages.
    pub cost: f64,
    /// An index scan that discards fewer rows isn't a finding. Default: 10,000.
    pub discarded_rows: f64,
    /// An index scan that discards a smaller fraction of the rows it finds isn't a finding. Default: 0.9.
    pub discarded_fraction: f64,
    /// A sort or hash table with fewer bytes isn't a finding, even if it exceeds `work_mem`. Default: 32 MB.
    pub spill_bytes: f64,
    /// A nested loop with fewer repetitions isn't a finding. Default: 100,000.
    pub loop_rows: f64,
    /// A generic plan is a finding if its cost is at least this multiple of the custom plan's cost. Default: 100.
    pub generic_ratio: f64,
    /// OFFSET for which pgfresh estimates the cost of a later page. Default: 100,000.
    pub offset: u64,
    /// Minimum table size, in pages of 8 KiB, for suggesting an index. Default: 1,000.
    pub index_pages: u64,
    /// Minimum fraction of a statement's cost that a suggested index must save. Default: 0.5.
    pub index_gain: f64,
    /// Minimum fraction by which a statement's cost must rise without an index, or else the index isn't suggested.
    /// Default: 0.05.
    pub index_loss: f64,
    /// Maximum number of columns in a suggested index, not counting INCLUDE. Default: 4.
    pub index_columns: usize,
    /// Maximum number of candidate indexes. Default: 500.
    pub candidates: usize,
    /// Maximum number of value sets to explain for each normalized statement. Default: 20.
    pub value_sets: usize,
    /// Maximum number of EXPLAINs for findings and indexes. EXPLAINs of value sets don't count. Default: 10,000.
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
