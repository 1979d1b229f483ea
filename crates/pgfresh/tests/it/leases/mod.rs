//! Tests leased databases: a name gives a fresh copy, copies are independent, and a reset or a
//! drop follows the lease.

mod failing_cleanup;
mod fairness;
mod foreign_sessions;
mod full_server;
mod name_rules;
mod renamed_by_sql;
mod replicas;
mod server_isolation;
mod slow_readers;
mod terms;
mod visiting_programs;

use std::sync::Barrier;
use std::time::Duration;

use lease::{Connected, Isolation, LeaseError, SessionGuard};
use pgwire::StartupParams;
use server::AdminConnection;
use template::ServerOptions;

use crate::common::leases::LeaseFixture;
use crate::common::{WAIT_TIMEOUT, wait_until};

fn fixture(setup: &str) -> LeaseFixture {
    LeaseFixture::new(ServerOptions::default(), setup, Duration::ZERO, true)
}

fn params() -> StartupParams {
    StartupParams::new([("user", "postgres"), ("application_name", "test")])
}

impl LeaseFixture {
    fn connect(&self, name: &str) -> Result<(AdminConnection, SessionGuard), LeaseError> {
        let Connected { backend, guard } = self.connect_with(name, None, &params())?;
        Ok((AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap(), guard))
    }

    /// Waits until the server doesn't have a database with this name.
    fn wait_until_gone(&self, name: &str) {
        let left = format!("SELECT FROM pg_database WHERE datname = '{name}'");
        wait_until(&format!("the end of database {name}"), || self.admin(&left).is_empty());
    }
}

fn one(session: &mut AdminConnection, sql: &str) -> String {
    session.query(sql).unwrap()[0][0].clone().unwrap_or_default()
}

const SETUP: &str = "CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item VALUES (1, 'one')";

#[test]
fn each_name_keeps_its_copy_during_sessions() {
    let fixture = fixture(SETUP);
    let (mut one_session, one_guard) = fixture.connect("one").unwrap();
    let (mut other_session, _other) = fixture.connect("other").unwrap();
    one_session.query("INSERT INTO item VALUES (2, 'two')").unwrap();
    assert_eq!(one(&mut one_session, "SELECT current_database()"), "one");
    assert_eq!(one(&mut other_session, "SELECT count(*) FROM item"), "1");
    let (mut again, again_guard) = fixture.connect("one").unwrap();
    assert_eq!(one(&mut again, "SELECT count(*) FROM item"), "2");
    drop((one_session, one_guard, again, again_guard));
    fixture.wait_until_gone("one");
    let (mut fresh, _fresh) = fixture.connect("one").unwrap();
    assert_eq!(one(&mut fresh, "SELECT count(*) FROM item"), "1");
}

#[test]
fn copies_have_the_templates_database_properties() {
    let fixture = fixture(
        "CREATE ROLE boss; ALTER DATABASE app OWNER TO boss; ALTER DATABASE app SET work_mem = '7MB'; \
         CREATE ROLE guest LOGIN; ALTER ROLE guest IN DATABASE app SET work_mem = '9MB'; \
         REVOKE CONNECT ON DATABASE app FROM public; GRANT CONNECT ON DATABASE app TO guest; \
         COMMENT ON DATABASE app IS 'mine'; ALTER DATABASE app CONNECTION LIMIT 50",
    );
    let (mut session, _guard) = fixture.connect("copy").unwrap();
    assert_eq!(one(&mut session, "SHOW work_mem"), "7MB");
    let sql = "SELECT concat_ws('|', pg_get_userbyid(datdba), datacl, datconnlimit, shobj_description(oid, 'pg_database')) \
               FROM pg_database WHERE datname = ";
    let template = fixture.admin(&format!("{sql}'pgfresh_template_app'"));
    assert_eq!(fixture.admin(&format!("{sql}'copy'")), template);
    assert!(template[0][0].as_deref().unwrap().contains("guest"), "{template:?}");
    let guest = StartupParams::new([("user", "guest")]);
    let connected = fixture.connect_with("copy", None, &guest).unwrap();
    let mut session = AdminConnection::adopt(connected.backend.stream, WAIT_TIMEOUT).unwrap();
    assert_eq!(one(&mut session, "SHOW work_mem"), "9MB");
}

#[test]
fn sql_creates_and_drops_plain_databases() {
    let fixture = fixture(SETUP);
    fixture.admin("CREATE DATABASE by_sql");
    let (mut session, guard) = fixture.connect("by_sql").unwrap();
    assert!(session.query("SELECT FROM item").is_err(), "it is no copy of the template");
    drop((session, guard));
    fixture.admin("DROP DATABASE by_sql");
    let (mut session, _guard) = fixture.connect("by_sql").unwrap();
    assert_eq!(one(&mut session, "SELECT count(*) FROM item"), "1");
    // This drops a lease's database, so the next session gets a new database.
    fixture.admin("DROP DATABASE by_sql WITH (FORCE)");
    let (mut session, _guard) = fixture.connect("by_sql").unwrap();
    assert_eq!(one(&mut session, "SELECT count(*) FROM item"), "1");
}

#[test]
fn a_release_with_sessions_permits_recycling() {
    let fixture = fixture(SETUP);
    // pgfresh has read the template when a copy is ready.
    wait_until("a ready copy", || fixture.leases.status().ready[0].1 > 0);
    fixture.leases.lease(Isolation::Clone, Some("held"), None).unwrap();
    let connect = || fixture.connect_with("held", None, &params()).unwrap();
    let (left, open) = (connect(), connect());
    left.guard.give_back(left.backend);
    std::thread::scope(|scope| {
        let leases = &fixture.leases;
        let release = scope.spawn(|| leases.release("held"));
        // The release ends both sessions. The open session's guard goes when the test notices the end.
        let mut session = AdminConnection::adopt(open.backend.stream, WAIT_TIMEOUT).unwrap();
        wait_until("the end of the open session", || session.query("SELECT 1").is_err());
        drop(open.guard);
        release.join().unwrap().unwrap();
    });
    // The name is free immediately, and a background thread resets the database.
    let mut status = fixture.leases.status();
    wait_until("the reset", || {
        status = fixture.leases.status();
        status.recycled.0 > 0 || !status.dropped.is_empty()
    });
    assert_eq!((status.recycled.0, &status.dropped), (1, &Vec::new()));
}

/// Eight concurrent clients each lease a different name, and share another name.
#[test]
fn parallel_leases_get_one_database_per_name() {
    const WORKERS: usize = 8;
    let fixture = fixture(SETUP);
    let (begin, inserted) = (Barrier::new(WORKERS), Barrier::new(WORKERS));
    let work = |worker: usize| {
        for round in 0..10 {
            begin.wait();
            let (mut session, _guard) = fixture.connect(&format!("w{worker}_{round}")).unwrap();
            let rows = one(&mut session, "INSERT INTO item VALUES (2); SELECT count(*) FROM item");
            assert_eq!(rows, "2", "worker {worker} alone in round {round}");
            let (mut shared, _guard) = fixture.connect(&format!("shared_{round}")).unwrap();
            shared.query(&format!("INSERT INTO item VALUES ({})", 100 + worker)).unwrap();
            // No session ends before all of them have started.
            inserted.wait();
            let rows = one(&mut shared, "SELECT count(*) FROM item");
            assert_eq!(rows, (1 + WORKERS).to_string(), "worker {worker} of all in round {round}");
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
}

#[test]
fn names_and_templates_that_cannot_be_are_refused() {
    let fixture = fixture(SETUP);
    assert!(matches!(fixture.connect("pgfresh_template_app"), Err(LeaseError::Name { .. })));
    assert!(matches!(fixture.connect(""), Err(LeaseError::Name { .. })));
    assert!(matches!(
        fixture.leases.lease(Isolation::Clone, None, Some("nope")),
        Err(LeaseError::UnknownTemplate { .. })
    ));
    let stranger = StartupParams::new([("user", "nobody_here")]);
    assert!(matches!(fixture.connect_with("x", None, &stranger), Err(LeaseError::Refused(_))));
    let (mut session, _guard) = fixture.connect("weird \"name' é").unwrap();
    assert_eq!(one(&mut session, "SELECT current_database()"), "weird \"name' é");
    let long = "n".repeat(80);
    let (mut session, _guard) = fixture.connect(&long).unwrap();
    assert_eq!(one(&mut session, "SELECT current_database()"), "n".repeat(63));
}

#[test]
fn changes_of_shared_objects_name_their_database() {
    let fixture = fixture(SETUP);
    let (mut session, guard) = fixture.connect("innocent").unwrap();
    session.query("INSERT INTO item VALUES (2)").unwrap();
    drop((session, guard));
    // A session that has ended doesn't change anything later.
    wait_until("the reset", || fixture.leases.status().recycled.0 > 0);
    let (mut session, guard) = fixture.connect("guilty").unwrap();
    session.query("CREATE ROLE left_behind").unwrap();
    session.query("ALTER SYSTEM SET work_mem = '5MB'").unwrap();
    drop((session, guard));
    fixture.wait_until_gone("guilty");
    let mut leaks = Vec::new();
    wait_until("two reports of shared objects", || {
        leaks = fixture.leases.status().leaks;
        leaks.len() >= 2
    });
    let named: Vec<_> = leaks.iter().map(|leak| leak.what).collect();
    assert_eq!(named, ["roles", "server settings (ALTER SYSTEM)"]);
    assert!(leaks.iter().all(|leak| leak.suspects == ["guilty"]), "{leaks:?}");
    assert_eq!(fixture.leases.status().differences, []);
}

#[test]
fn a_snapshot_has_the_databases_current_content() {
    let fixture = fixture(SETUP);
    fixture.leases.lease(Isolation::Clone, Some("source"), None).unwrap();
    let (mut session, guard) = fixture.connect("source").unwrap();
    session.query("INSERT INTO item VALUES (2, 'two')").unwrap();
    assert!(matches!(fixture.leases.snapshot("source", "later", false), Err(LeaseError::InUse { .. })));
    drop((session, guard));
    fixture.leases.snapshot("source", "later", false).unwrap();
    let connected = fixture.connect_with("copy", Some("later"), &params()).unwrap();
    let mut copy = AdminConnection::adopt(connected.backend.stream, WAIT_TIMEOUT).unwrap();
    assert_eq!(one(&mut copy, "SELECT count(*) FROM item"), "2");
    fixture.leases.remove_template("later").unwrap();
    assert_eq!(one(&mut copy, "SELECT count(*) FROM item"), "2");
}

#[test]
fn a_snapshot_has_its_databases_shared_rows() {
    let fixture = fixture(SETUP);
    fixture.leases.lease(Isolation::Clone, Some("source"), None).unwrap();
    let (mut session, guard) = fixture.connect("source").unwrap();
    for sql in [
        "CREATE ROLE keeper",
        "ALTER DATABASE source OWNER TO keeper",
        "ALTER DATABASE source SET work_mem = '5MB'",
        "GRANT CREATE ON DATABASE source TO keeper",
        "COMMENT ON DATABASE source IS 'kept'",
        "ALTER DATABASE source CONNECTION LIMIT 90",
    ] {
        session.query(sql).unwrap();
    }
    drop((session, guard));
    fixture.leases.snapshot("source", "later", true).unwrap();
    let connected = fixture.connect_with("copy", Some("later"), &params()).unwrap();
    let mut copy = AdminConnection::adopt(connected.backend.stream, WAIT_TIMEOUT).unwrap();
    let what = "SELECT concat_ws(' ', pg_get_userbyid(datdba), datacl::text, datconnlimit, current_setting('work_mem'),
            shobj_description(oid, 'pg_database'),
            (SELECT string_agg(deptype::text, '' ORDER BY deptype) FROM pg_shdepend WHERE objid = d.oid
               AND classid = 'pg_database'::regclass))
        FROM pg_database d WHERE datname = current_database()";
    let acl = "{=Tc/keeper,keeper=CTc/keeper}";
    assert_eq!(one(&mut copy, what), format!("keeper {acl} 90 5MB kept o"));
}

#[test]
fn closed_databases_with_prepared_transactions_are_dropped() {
    let settings = vec![("max_prepared_transactions".to_owned(), "8".to_owned())];
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let fixture = LeaseFixture::new(options, SETUP, Duration::ZERO, false);
    let (mut session, guard) = fixture.connect("closed").unwrap();
    session.query("BEGIN; INSERT INTO item VALUES (2, 'two'); PREPARE TRANSACTION 'left'").unwrap();
    let oid = one(&mut session, "SELECT oid FROM pg_database WHERE datname = current_database()");
    fixture.admin("ALTER DATABASE closed ALLOW_CONNECTIONS false");
    drop((session, guard));
    wait_until("the end of the database", || {
        fixture.admin(&format!("SELECT FROM pg_database WHERE oid = {oid}")).is_empty()
    });
    let errors = fixture.leases.status().errors;
    assert!(errors.iter().all(|(verb, _)| *verb != "drop a database"), "{errors:?}");
}

#[test]
fn generated_names_avoid_names_of_sql() {
    let fixture = fixture(SETUP);
    let next = |fixture: &LeaseFixture| {
        let (name, _) = fixture.leases.lease(Isolation::Clone, None, None).unwrap();
        name.strip_prefix("fresh_").unwrap().parse::<u64>().unwrap()
    };
    let first = next(&fixture);
    // pgfresh makes copies in the background, which also take numbers.
    for number in first + 1..first + 12 {
        fixture.admin(&format!("CREATE DATABASE fresh_{number}"));
    }
    assert!(next(&fixture) > first + 11);
}
