//! Tests that small leases of the same database leave files and catalog rows behind, but that these
//! don't grow without limit.

use template::ServerOptions;

use crate::common::digests::DigestFixture;
use crate::common::wait_until;

/// Database that is reset after each `statement`.
struct Reused(DigestFixture);

impl Reused {
    fn new(setup: &str) -> Self {
        let reused = Self(DigestFixture::untouched(ServerOptions::default(), setup));
        wait_until("two ready databases", || reused.0.server.leases.status().ready[0].1 > 1);
        reused
    }

    fn lease(&self, statement: &str) {
        self.ask(statement);
        self.0.server.leases.reset("reused", true).unwrap();
    }

    fn ask(&self, sql: &str) -> i64 {
        let (mut session, ..) = self.0.connect("reused", "postgres");
        let rows = session.query(sql).unwrap();
        rows.first().and_then(|row| row[0].as_ref()?.parse().ok()).unwrap_or_default()
    }
}

#[test]
fn rows_of_many_leases_take_no_room() {
    let reused = Reused::new("CREATE TABLE item (id int PRIMARY KEY, name text)");
    let mut largest = 0;
    for _ in 0..20 {
        reused.lease("INSERT INTO item SELECT i, repeat('x', 300) FROM generate_series(1, 100) i");
        largest = largest.max(reused.ask("SELECT pg_relation_size('item')"));
    }
    let dropped = reused.0.server.leases.status().dropped;
    assert!(dropped.is_empty(), "{dropped:?}");
    assert_eq!(largest, 0);
}

#[test]
fn a_database_whose_catalogs_have_grown_is_dropped() {
    let reused = Reused::new("CREATE TABLE item (id int)");
    let columns: Vec<_> = (0..200).map(|column| format!("c{column} int")).collect();
    let sql = format!("CREATE TEMPORARY TABLE temporary ({})", columns.join(", "));
    let leases = (0..150).take_while(|_| {
        reused.lease(&sql);
        reused.0.server.leases.status().dropped.is_empty()
    });
    let leases = leases.count();
    assert_eq!(reused.0.server.leases.status().dropped, [("its catalogs grew too much", 1)]);
    // Each lease adds about 220 rows.
    assert!((70..100).contains(&leases), "{leases}");
}
