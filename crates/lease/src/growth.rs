//! Limit of the room that a database takes and nothing gives back: autovacuum comes once an hour.

/// Most rows of catalogs that leases may have written, as with temporary tables, until pgfresh drops the database: they stay until a
/// VACUUM.
const MOST_OF_CATALOGS: u64 = 20_000;

/// Rows of catalogs that the leases of one database have written.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    catalogs: u64,
}

impl Growth {
    /// Counts rows of catalogs; false if these are too many by now.
    pub(crate) fn has_room_for(&mut self, rows_of_catalogs: u64) -> bool {
        self.catalogs = self.catalogs.saturating_add(rows_of_catalogs);
        self.catalogs <= MOST_OF_CATALOGS
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
}
