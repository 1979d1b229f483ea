//! Tests the order of a test's rows without ORDER BY, which depends on the line pointers: it must be the same as in a
//! new copy, whatever earlier leases did.

use std::collections::BTreeMap;
use std::fs;

use server::VersionRequest;
use template::ServerOptions;

use crate::common::connection::{Address, Connection};
use crate::common::digests::DigestFixture;
use crate::common::{on_every_major, postgres, wait_until};

on_every_major! {
    reset_leaves_line_pointers_as_in_copy
    databases_with_rows_for_a_standby_are_dropped
}

/// A table of each kind that a reset empties or fills again.
const SETUP: &str = "CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, large text); \
    CREATE INDEX ON item USING gist (circle(point(id, id), 1)); CREATE INDEX ON item USING hash (name); \
    CREATE TABLE part (id int, name text) PARTITION BY LIST (id); CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1); \
    CREATE UNLOGGED TABLE draft (id int); CREATE TABLE child (item int REFERENCES item); \
    CREATE TABLE kind (id int PRIMARY KEY, name text, large text); \
    ALTER TABLE kind ALTER large SET STORAGE EXTERNAL; ALTER TABLE item ALTER large SET STORAGE EXTERNAL; \
    INSERT INTO kind SELECT i, 'kind', repeat('x', 3000) FROM generate_series(1, 20) i";

/// Statements for consecutive leases. After each, a reset recycles the database.
const USES: &[&str] = &[
    "INSERT INTO item VALUES (1, 'a', repeat('x', 30000)), (2, 'b', NULL); INSERT INTO child VALUES (1)",
    "BEGIN; INSERT INTO item SELECT i, 'name' FROM generate_series(1, 50) i; ROLLBACK",
    "INSERT INTO item VALUES (1, 'a'); UPDATE item SET name = 'b'; UPDATE item SET name = 'c'; SELECT count(*) FROM item",
    "BEGIN; INSERT INTO item VALUES (1, 'a'); SAVEPOINT s; INSERT INTO item VALUES (2, 'b'); ROLLBACK TO s; COMMIT",
    "INSERT INTO item SELECT i, repeat('n', 500) FROM generate_series(1, 300) i; DELETE FROM item WHERE id % 2 = 0",
    "INSERT INTO item VALUES (1, 'a') ON CONFLICT DO NOTHING; INSERT INTO item VALUES (1, 'a') ON CONFLICT DO NOTHING",
    "INSERT INTO part VALUES (1, 'a'); INSERT INTO draft SELECT generate_series(1, 900); DELETE FROM draft",
    "UPDATE kind SET name = 'other'; DELETE FROM kind WHERE id > 10; INSERT INTO kind VALUES (21, 'more', repeat('y', 9000))",
    "BEGIN; UPDATE kind SET name = 'other'; ROLLBACK",
    "INSERT INTO item VALUES (1, 'a'); DELETE FROM item; VACUUM item; INSERT INTO item VALUES (2, 'b')",
    "INSERT INTO item VALUES (1, 'a'); VACUUM (FREEZE) item, kind",
    "TRUNCATE item CASCADE; INSERT INTO item VALUES (1, 'a')",
    "BEGIN; TRUNCATE part; INSERT INTO part VALUES (1, 'a'); COMMIT; DELETE FROM part",
];

/// A relation's pages, each with the states of its line pointers. Source:
/// `src/include/storage/bufpage.h`, `itemid.h`.
type Pages = Vec<Vec<u32>>;

impl DigestFixture {
    /// Reads the line pointers of all user tables, including their TOAST tables.
    fn line_pointers(&self, name: &str) -> BTreeMap<String, Pages> {
        let (mut session, ..) = self.connect(name, "postgres");
        session.query("CHECKPOINT").unwrap();
        let files = "SELECT coalesce(o.relname, c.relname), c.relkind, pg_relation_filepath(c.oid) \
            FROM pg_class c LEFT JOIN pg_class o ON o.reltoastrelid = c.oid WHERE c.relkind IN ('r', 't') AND c.oid >= 16384";
        let pages = |row: Vec<Option<String>>| {
            let [relation, kind, path] = [0, 1, 2].map(|column| row[column].clone().unwrap());
            let bytes = fs::read(self.server.started.server.run().data().join(path)).unwrap();
            (format!("{relation} {kind}"), bytes.chunks(8192).map(line_pointers).collect())
        };
        session.query(files).unwrap().into_iter().map(pages).collect()
    }
}

fn line_pointers(page: &[u8]) -> Vec<u32> {
    let lower = usize::from(u16::from_ne_bytes([page[12], page[13]]));
    let pointers = page.get(24..lower).unwrap_or_default().chunks_exact(4);
    pointers.map(|pointer| u32::from_ne_bytes(pointer.try_into().unwrap()) >> 15 & 3).collect()
}

fn reset_leaves_line_pointers_as_in_copy(major: u32) {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let fixture = DigestFixture::untouched(ServerOptions { installation, ..ServerOptions::default() }, SETUP);
    wait_until("two ready databases", || fixture.server.leases.status().ready[0].1 > 1);
    let planner = "SELECT oid, relpages, reltuples, relallvisible FROM pg_class ORDER BY oid";
    let (copy, expected) =
        (fixture.line_pointers("copy"), fixture.connect("copy", "postgres").0.query(planner).unwrap());
    assert_eq!(copy["kind r"].concat(), [1; 20], "the template's own rows");
    for statements in USES {
        let before = fixture.recycled();
        let (mut session, _, guard) = fixture.connect("used", "postgres");
        for statement in statements.split("; ") {
            session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        drop((session, guard));
        fixture.server.leases.reset("used", true).unwrap();
        let why = fixture.server.leases.status().dropped;
        assert_eq!(fixture.recycled(), before + 1, "not recycled after {statements}: {why:?}");
        assert_eq!(fixture.line_pointers("used"), copy, "after {statements}");
        assert_eq!(
            fixture.connect("used", "postgres").0.query(planner).unwrap(),
            expected,
            "after {statements}"
        );
    }
}

/// When a page is nearly full of deleted rows, the server prunes it in the middle of a lease.
#[test]
fn rows_of_every_lease_come_in_their_order() {
    let fixture = DigestFixture::untouched(ServerOptions::default(), "CREATE TABLE e (v text, filler text)");
    wait_until("two ready databases", || fixture.server.leases.status().ready[0].1 > 1);
    for number in 0..60 {
        let (mut session, _, guard) = fixture.connect("used", "postgres");
        for statement in [
            "INSERT INTO e VALUES ('a', repeat('x', 300))",
            "UPDATE e SET v = 'a2'",
            "SELECT count(*) FROM e",
            "INSERT INTO e VALUES ('b', repeat('x', 300))",
        ] {
            session.query(statement).unwrap();
        }
        let rows = session.query("SELECT v FROM e").unwrap().concat();
        assert_eq!(rows, ["a2", "b"].map(|row| Some(row.to_owned())), "lease {number}");
        drop((session, guard));
        fixture.server.leases.reset("used", true).unwrap();
    }
    assert_eq!(fixture.recycled(), 60);
}

/// A standby needs the rows that a reset deletes, so VACUUM keeps them.
fn databases_with_rows_for_a_standby_are_dropped(major: u32) {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let options = ServerOptions { installation, ..ServerOptions::default() };
    let fixture = DigestFixture::untouched(options, "CREATE TABLE e (id int PRIMARY KEY)");
    wait_until("two ready databases", || fixture.server.leases.status().ready[0].1 > 1);
    let socket = fixture.server.started.server.run().socket_directory().join(server::SOCKET);
    let mut standby =
        Connection::open(&Address::Unix(socket), "postgres", &[("replication", "true")]).unwrap();
    let ends = fixture.server.admin("SELECT pg_current_wal_flush_lsn(), txid_current()").concat();
    let [end, next] = &ends[..] else { panic!("{ends:?}") };
    let start = format!("START_REPLICATION PHYSICAL {}\0", end.as_deref().unwrap());
    standby.send(b'Q', start.as_bytes()).unwrap();
    let next: u32 = next.as_deref().unwrap().parse().unwrap();
    // HotStandbyFeedback: the time, the oldest transaction that the standby needs, and no
    // transaction for its catalogs.
    let feedback = [&b"h"[..], &[0; 8], &next.to_be_bytes(), &[0; 12]].concat();
    standby.send(b'd', &feedback).unwrap();
    let holds = "SELECT FROM pg_stat_replication WHERE backend_xmin IS NOT NULL";
    wait_until("the standby's oldest transaction", || !fixture.server.admin(holds).is_empty());
    let (mut session, _, guard) = fixture.connect("used", "postgres");
    session.query("INSERT INTO e VALUES (1), (2)").unwrap();
    drop((session, guard));
    fixture.server.leases.reset("used", true).unwrap();
    assert_eq!(fixture.server.leases.status().dropped, [("its deleted rows could not be removed", 1)]);
    drop(standby);
}
