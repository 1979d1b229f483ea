//! Limits the space that dead rows occupy in a database. Autovacuum would
//! free this space, but pgfresh's servers run it only once an hour.

/// pgfresh drops a database once its leases have written more catalog rows than this. Each temporary table, for
/// example, writes several. Even deleted rows occupy space until a VACUUM.
const MOST_OF_CATALOGS: u64 = 20_000;
/// pgfresh drops a database once its leases have rolled back more rows than this. Rolled-back rows occupy space until a
/// VACUUM, and nothing triggers one.
const MOST_ROLLED_BACK: u64 = 10_000;

/// Counts the rows written by one database's leases that still occupy space.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    catalogs: u64,
    rolled_back: u64,
}

impl Growth {
    /// Adds to the number of catalog rows. Returns `false` once there are too many.
    pub(crate) fn has_room_for(&mut self, rows_of_catalogs: u64) -> bool {
        self.catalogs = self.catalogs.saturating_add(rows_of_catalogs);
        self.catalogs <= MOST_OF_CATALOGS
    }

    /// Adds to the number of rows that leases have rolled back. Returns `false` once there are too many.
    pub(crate) fn has_room_for_rolled_back(&mut self, rows: u64) -> bool {
        self.rolled_back = self.rolled_back.saturating_add(rows);
        self.rolled_back <= MOST_ROLLED_BACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_rows_accumulate_until_growth_limit() {
        let mut growth = Growth::default();
        assert_eq!((0..1000).take_while(|_| growth.has_room_for(50)).count(), 400);
    }

    #[test]
    fn rolled_back_rows_add_up_across_leases() {
        let mut growth = Growth::default();
        assert_eq!((0..100).take_while(|_| growth.has_room_for_rolled_back(1000)).count(), 10);
    }
}
