//! How much room a database may have come to take that nothing gives back: resets delete rows, and autovacuum comes once an hour.

use std::collections::HashMap;

/// Rows of a table that one lease may have touched without its size being looked at.
const FEW: u64 = 100;
/// Rows of a table that leases may have touched since its size was looked at.
const MANY: u64 = 2_000;
/// Rows of catalogs that leases may have written, as with temporary tables, until the database is dropped: they stay until a VACUUM.
const MOST_OF_CATALOGS: u64 = 20_000;

/// Rows that the leases of one database have touched.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// By table, since its size was looked at.
    tables: HashMap<u32, u64>,
    catalogs: u64,
}

impl Growth {
    /// Counts rows of a table. Returns whether its size is to be looked at now.
    pub(crate) fn is_to_be_measured(&mut self, table: u32, rows: u64) -> bool {
        let sum = self.tables.entry(table).or_default();
        *sum = sum.saturating_add(rows);
        let is_due = rows > FEW || *sum > MANY;
        if is_due {
            *sum = 0;
        }
        is_due
    }

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
    fn what_many_small_leases_touch_adds_up_until_the_size_is_looked_at() {
        let mut growth = Growth::default();
        let leases = |growth: &mut Growth| (1..100).find(|_| growth.is_to_be_measured(1, 100));
        assert_eq!((leases(&mut growth), leases(&mut growth)), (Some(21), Some(21)));
        assert!(!growth.is_to_be_measured(2, 100), "another table has its own count");
        assert!(growth.is_to_be_measured(2, 101), "one large lease is enough");
    }

    #[test]
    fn rows_of_catalogs_add_up_until_the_database_is_dropped() {
        let mut growth = Growth::default();
        assert_eq!((0..1000).take_while(|_| growth.has_room_for(50)).count(), 400);
    }
}
