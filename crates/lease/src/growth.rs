//! Limits the space that a database takes and never gives back, because autovacuum runs only once an hour.

/// Maximum number of catalog rows that leases can write before pgfresh drops the database. For example, temporary tables write such
/// rows, and they remain until a VACUUM.
const MOST_OF_CATALOGS: u64 = 20_000;

/// Number of catalog rows that the leases of one database have written.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    catalogs: u64,
}

impl Growth {
    /// Counts further catalog rows. Returns false once there are too many.
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
