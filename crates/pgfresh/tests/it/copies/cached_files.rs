//! Tests that file copies equal the copies that CREATE DATABASE makes, whatever happens to the server, the cache and
//! the template meanwhile.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lease::{Connected, Digest, LeaseError};
use server::{AdminConnection, VersionRequest};
use template::{ServerOptions, complete_copy, create_copy};

use crate::common::digests::DigestFixture;
use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, depth, on_every_major, postgres, wait_until};

on_every_major! {
    copies_equal_create_database
    changes_of_the_template_reach_no_copy
    the_server_copies_after_frozen_horizons_move
    impostors_of_a_template_are_not_copied
    crashes_during_copies_are_harmless
    abandoned_copies_leave_no_files
    template1_copies_equal_create_database
    changes_of_template1_are_in_later_databases
    properties_set_on_a_template_reach_no_copy
    renamed_roles_keep_the_templates_rights
    role_wide_changes_reach_no_other_database
    no_copy_has_a_dropped_owner
    no_copy_is_made_without_its_owner
    the_server_copies_with_standbys
}

/// Name of the template's database on pgfresh's servers.
const TEMPLATE: &str = "pgfresh_template_app";
/// SQL for a template with all kinds of objects that belong to a database but lie outside it.
const SQL: &str = "CREATE ROLE keeper; CREATE ROLE reader; CREATE TABLE base (id serial PRIMARY KEY, word text); \
    INSERT INTO base (word) SELECT md5(i::text) FROM generate_series(1, 500) i; ALTER TABLE base OWNER TO keeper; \
    GRANT SELECT ON base TO reader; ALTER DATABASE app OWNER TO keeper; GRANT CONNECT ON DATABASE app TO reader; \
    ALTER DATABASE app SET work_mem = '5MB'; ALTER DATABASE app CONNECTION LIMIT 50; COMMENT ON DATABASE app IS 'shop'; \
    ALTER DEFAULT PRIVILEGES FOR ROLE keeper GRANT SELECT ON TABLES TO reader; ANALYZE";

/// Returns options for a server that logs all statements that make databases.
fn options(major: u32) -> ServerOptions {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let settings = vec![("log_statement".to_owned(), "ddl".to_owned())];
    ServerOptions { installation, settings, ..ServerOptions::default() }
}

/// Starts a server with a template in the cache, and waits for two ready databases.
fn open(major: u32) -> DigestFixture {
    ready(LeaseFixture::noted(options(major), SQL, None, Duration::from_mins(10), |_| ()))
}

/// Starts a server without a template, and waits for two ready databases.
fn open_without_template(options: ServerOptions) -> DigestFixture {
    ready(LeaseFixture::without_template(options, Duration::from_mins(10)))
}

fn ready(server: LeaseFixture) -> DigestFixture {
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    DigestFixture::of(server)
}

impl DigestFixture {
    /// Returns the number of databases that SQL statements have made.
    fn made_by_sql(&self) -> usize {
        let log = fs::read_to_string(self.server.started.server.run().log()).unwrap();
        log.matches("statement: CREATE DATABASE").count()
    }

    /// Returns the shared catalog rows about a database, without its name and OID.
    fn described(&self, database: &str) -> Vec<Vec<Option<String>>> {
        let oid = format!("(SELECT oid FROM pg_database WHERE datname = '{database}')");
        self.server.admin(&format!(
            "SELECT 'database', (to_jsonb(d) - 'oid' - 'datname' - 'datallowconn')::text FROM pg_database d WHERE datname = '{database}' \
             UNION ALL SELECT 'owned', format('%s %s %s %s %s %s', classid, objid, objsubid, refclassid, refobjid, deptype) \
               FROM pg_shdepend WHERE dbid = {oid} \
             UNION ALL SELECT 'depends', format('%s %s %s %s', objsubid, refclassid, refobjid, deptype) \
               FROM pg_shdepend WHERE classid = 'pg_database'::regclass AND objid = {oid} \
             UNION ALL SELECT 'set', setrole || setconfig::text FROM pg_db_role_setting WHERE setdatabase = {oid} \
             UNION ALL SELECT 'said', description FROM pg_shdescription WHERE objoid = {oid} ORDER BY 1, 2"
        ))
    }

    /// Leases a database, and checks that it equals the template.
    fn expect_fresh(&self, name: &str) -> Result<(), LeaseError> {
        let Connected { backend, .. } = self.server.connect_with(name, None, &params("postgres"))?;
        let state = "SELECT count(*), string_agg(word, '' ORDER BY id) = (SELECT string_agg(md5(i::text), '' ORDER BY i) \
            FROM generate_series(1, 500) i), obj_description('base'::regclass), nextval('base_id_seq') FROM base";
        let fresh = [Some("500"), Some("t"), None, Some("501")].map(|value| value.map(ToOwned::to_owned));
        match AdminConnection::adopt(backend.stream, WAIT_TIMEOUT)
            .and_then(|mut session| session.query(state))
        {
            // Another test process ends sessions, which might include this session.
            Err(error) if error.is_fatal() => Ok(()),
            rows => {
                assert_eq!(rows.unwrap(), [fresh], "{name}");
                Ok(())
            }
        }
    }
}

fn copies_equal_create_database(major: u32) {
    let fixture = open(major);
    assert_eq!(fixture.made_by_sql(), 0);
    fixture.server.admin(&create_copy(TEMPLATE, "by_hand", major));
    fixture.server.admin(&complete_copy(TEMPLATE, "by_hand"));
    let described = fixture.described("by_hand");
    let kinds = ["database", "depends", "owned", "said", "set"];
    assert!(
        kinds.iter().all(|kind| described.iter().any(|row| row[0].as_deref() == Some(kind))),
        "{described:?}"
    );
    for number in 1..3 {
        assert_eq!(fixture.described(&format!("pgfresh_ready_{number}")), described);
    }
    let mut by_hand = fixture.server.started.server.session("by_hand").unwrap();
    let by_hand = Digest::read(&mut by_hand).unwrap();
    assert_eq!(by_hand.difference(&fixture.digest("a")), None);
    // The server drops this database like any other database.
    fixture.server.leases.release("a").unwrap();
    fixture.server.admin("DROP DATABASE pgfresh_ready_2");
    let dropped =
        fixture.server.started.server.session("postgres").unwrap().query("DROP ROLE keeper").unwrap_err();
    assert!(dropped.to_string().contains("objects depend on it"), "{dropped}");
}

fn changes_of_the_template_reach_no_copy(major: u32) {
    let fixture = open(major);
    let described = fixture.described("pgfresh_ready_1");
    for (number, change) in [
        "INSERT INTO base VALUES (1000)",
        "UPDATE base SET word = 'changed'",
        "SELECT nextval('base_id_seq')",
        "COMMENT ON TABLE base IS 'changed'",
        "VACUUM (FULL, FREEZE)",
        "ALTER TABLE base OWNER TO reader",
        "DROP TABLE base",
    ]
    .into_iter()
    .enumerate()
    {
        fixture.in_template(change);
        for lease in 0..3 {
            let name = format!("lease_{number}_{lease}");
            fixture.expect_fresh(&name).unwrap();
            assert_eq!(fixture.described(&name), described, "{change}");
        }
    }
    assert_eq!(fixture.made_by_sql(), 0);
}

fn template1_copies_equal_create_database(major: u32) {
    for sql in [
        "SELECT",
        "ALTER DATABASE template1 OWNER TO bob",
        "ALTER DATABASE template1 CONNECTION LIMIT 0",
        "GRANT CREATE ON DATABASE template1 TO bob",
        "COMMENT ON DATABASE template1 IS 'mine'",
        "ALTER DATABASE template1 SET work_mem = '5MB'",
    ] {
        let fixture = open_without_template(options(major));
        fixture.server.admin("CREATE ROLE bob");
        fixture.server.admin(sql);
        for lease in 0..4 {
            drop(fixture.connect(&format!("lease_{lease}"), "postgres"));
        }
        assert_eq!(fixture.made_by_sql(), 0, "{sql}");
        fixture.server.admin(&create_copy("template1", "by_hand", major));
        let described = fixture.described("by_hand");
        for lease in 0..4 {
            assert_eq!(fixture.described(&format!("lease_{lease}")), described, "{sql}");
        }
        let may_make_tables = "SET ROLE bob; CREATE TEMP TABLE x (id int)";
        fixture.server.started.server.session("lease_3").unwrap().query(may_make_tables).unwrap();
    }
}

fn changes_of_template1_are_in_later_databases(major: u32) {
    // The server recycles WAL files that pgfresh hasn't read yet.
    let mut options = options(major);
    options.settings.push(("min_wal_size".to_owned(), "32MB".to_owned()));
    let fixture = open_without_template(options);
    fixture.server.started.server.session("template1").unwrap().query("CREATE TABLE mine (id int)").unwrap();
    fixture.server.admin("CHECKPOINT");
    let has_it = |lease: &str| {
        drop(fixture.connect(lease, "postgres"));
        let mut session = fixture.server.started.server.session(lease).unwrap();
        session.query("SELECT to_regclass('mine') IS NOT NULL").unwrap() == [[Some("t".to_owned())]]
    };
    let mut number = 0..;
    let mut lease = || has_it(&format!("lease_{}", number.next().unwrap()));
    // Some databases were ready before the change.
    for _ in 0..4 {
        assert!(lease());
    }
    for _ in 0..8 {
        fixture.server.admin(
            "SELECT pg_logical_emit_message(false, 'x', repeat('y', 900000)) FROM generate_series(1, 18)",
        );
        fixture.server.admin("SELECT pg_switch_wal()");
        fixture.server.admin("CHECKPOINT");
    }
    for _ in 0..6 {
        assert!(lease());
    }
}

fn properties_set_on_a_template_reach_no_copy(major: u32) {
    let fixture = open(major);
    let described = fixture.described("pgfresh_ready_1");
    let folder = fixture.server.started.server.run().data().join("elsewhere").display().to_string();
    fixture.server.admin(&format!("COPY (SELECT) TO PROGRAM 'mkdir {folder}'"));
    fixture.server.admin(&format!("CREATE TABLESPACE elsewhere LOCATION '{folder}'"));
    fixture.server.admin(&format!("ALTER DATABASE {TEMPLATE} SET TABLESPACE elsewhere"));
    fixture.server.admin(&format!("UPDATE pg_database SET encoding = 0 WHERE datname = '{TEMPLATE}'"));
    for lease in 0..6 {
        let name = format!("lease_{lease}");
        fixture.expect_fresh(&name).unwrap();
        assert_eq!(fixture.described(&name), described);
    }
    assert_eq!(fixture.made_by_sql(), 0);
}

/// Some statements affect all databases of a role, wherever a client runs the statement. Other
/// statements name the template.
fn role_wide_changes_reach_no_other_database(major: u32) {
    let fixture = open(major);
    fixture.server.admin("CREATE ROLE other");
    let described = fixture.described("pgfresh_ready_1");
    let of_template = ["OWNER TO other", "SET work_mem = '99MB'", "CONNECTION LIMIT 3"];
    let statements = ["REASSIGN OWNED BY keeper TO other", "DROP OWNED BY reader"].map(ToOwned::to_owned);
    let statements = statements
        .into_iter()
        .chain(of_template.map(|change| format!("ALTER DATABASE {TEMPLATE} {change}")))
        .chain([
            format!("GRANT ALL ON DATABASE {TEMPLATE} TO other"),
            format!("COMMENT ON DATABASE {TEMPLATE} IS 'changed'"),
            format!("ALTER ROLE reader IN DATABASE {TEMPLATE} SET work_mem = '7MB'"),
            "DO $$ DECLARE n text; BEGIN FOR n IN SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_ready%' LOOP \
             EXECUTE format('ALTER DATABASE %I SET statement_timeout = %L', n, '77s'); END LOOP; END $$"
                .to_owned(),
        ]);
    for (number, statement) in statements.enumerate() {
        let guilty = format!("guilty_{number}");
        let Connected { backend, guard } =
            fixture.server.connect_with(&guilty, None, &params("postgres")).unwrap();
        AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap().query(&statement).unwrap();
        drop(guard);
        fixture.server.leases.release(&guilty).unwrap();
        // These are more databases than were ready before the change.
        for lease in 0..6 {
            let name = format!("lease_{number}_{lease}");
            fixture.expect_fresh(&name).unwrap();
            assert_eq!(fixture.described(&name), described, "{statement}");
        }
    }
}

/// A role that has a setting for the database, or that owns it, is renamed. The copies refer to the renamed roles.
fn renamed_roles_keep_the_templates_rights(major: u32) {
    let sql = "CREATE ROLE keeper; CREATE ROLE reader; CREATE TABLE base (id int); ALTER DATABASE app OWNER TO keeper; \
        ALTER ROLE reader IN DATABASE app SET work_mem = '5MB'";
    let server =
        ready(LeaseFixture::noted(options(major), sql, None, Duration::from_mins(10), |_| ())).server;
    server.admin("CREATE ROLE other");
    server.admin("ALTER ROLE reader RENAME TO renamed_reader");
    server.admin("ALTER ROLE keeper RENAME TO renamed_keeper");
    server.admin("REASSIGN OWNED BY renamed_keeper TO other");
    for lease in 0..6 {
        let name = format!("lease_{lease}");
        drop(server.connect_with(&name, None, &params("postgres")).unwrap());
        let of_it = format!(
            "SELECT datdba::regrole, setrole::regrole, setconfig FROM pg_database d \
             JOIN pg_db_role_setting ON setdatabase = d.oid WHERE datname = '{name}'"
        );
        let expected =
            ["renamed_keeper", "renamed_reader", "{work_mem=5MB}"].map(|text| Some(text.to_owned()));
        assert_eq!(server.admin(&of_it), [expected], "{name}");
    }
}

/// A role that owned only the template's database is dropped, and another role gets its name. No copy must
/// belong to the dropped role.
fn no_copy_has_a_dropped_owner(major: u32) {
    let sql = "CREATE ROLE keeper; CREATE ROLE reader; CREATE TABLE base (id int); ALTER DATABASE app OWNER TO keeper; \
        ALTER ROLE reader IN DATABASE app SET work_mem = '5MB'";
    let server =
        ready(LeaseFixture::noted(options(major), sql, None, Duration::from_mins(10), |_| ())).server;
    for statement in [
        "REASSIGN OWNED BY keeper TO postgres",
        "DROP OWNED BY keeper",
        "DROP ROLE keeper",
        "CREATE ROLE keeper",
        "DROP ROLE reader",
    ] {
        server.admin(statement);
    }
    for lease in 0..6 {
        drop(server.connect_with(&format!("lease_{lease}"), None, &params("postgres")).unwrap());
    }
    let gone = server.admin(
        "SELECT 'owner', datname FROM pg_database WHERE datdba NOT IN (SELECT oid FROM pg_authid) \
         UNION ALL SELECT 'dependency', objid::text FROM pg_shdepend \
           WHERE refclassid = 'pg_authid'::regclass AND refobjid NOT IN (SELECT oid FROM pg_authid) \
         UNION ALL SELECT 'setting', setdatabase::text FROM pg_db_role_setting \
           WHERE setrole <> 0 AND setrole NOT IN (SELECT oid FROM pg_authid)",
    );
    assert!(gone.is_empty(), "{gone:?}");
}

/// A replication slot is a sign of a standby. The server then makes the copies itself, even after the slot has gone.
fn the_server_copies_with_standbys(major: u32) {
    let fixture = open(major);
    fixture.server.admin("SELECT pg_create_physical_replication_slot('standby')");
    for lease in 0..4 {
        fixture.expect_fresh(&format!("lease_{lease}")).unwrap();
    }
    wait_until("copies by the server", || fixture.made_by_sql() > 1);
    fixture.server.admin("SELECT pg_drop_replication_slot('standby')");
    let made = fixture.made_by_sql();
    for lease in 4..8 {
        fixture.expect_fresh(&format!("lease_{lease}")).unwrap();
    }
    assert!(fixture.made_by_sql() > made + 1);
}

/// The server can remove its record of old transactions once no database needs the record. Then it can't interpret
/// rows in files that it isn't aware of.
fn the_server_copies_after_frozen_horizons_move(major: u32) {
    for column in ["datfrozenxid", "datminmxid"] {
        let fixture = open(major);
        let next = if column == "datminmxid" { "'100000'" } else { "pg_current_xact_id()::text" };
        fixture.server.admin(&format!("UPDATE pg_database SET {column} = {next}::xid"));
        for lease in 0..4 {
            fixture.expect_fresh(&format!("lease_{lease}")).unwrap();
        }
        wait_until("a copy by the server", || fixture.made_by_sql() > 0);
    }
}

/// SQL can't drop a role that owns an object in a copy, but it can delete the role's row.
fn no_copy_is_made_without_its_owner(major: u32) {
    let fixture = open(major);
    fixture.in_template("DROP TABLE base");
    fixture.server.admin("DELETE FROM pg_authid WHERE rolname = 'keeper'");
    let leased = (0..4).find_map(|lease| fixture.expect_fresh(&format!("lease_{lease}")).err());
    assert!(matches!(leased, Some(LeaseError::Changed(_))), "{leased:?}");
}

fn impostors_of_a_template_are_not_copied(major: u32) {
    let fixture = open(major);
    fixture.give_template_name_to_another();
    let leased = (0..4).find_map(|lease| fixture.expect_fresh(&format!("lease_{lease}")).err());
    assert!(matches!(leased, Some(LeaseError::Changed(_))), "{leased:?}");
    // pgfresh serves a database that SQL has made.
    fixture.server.admin("CREATE DATABASE own TEMPLATE template0");
    drop(fixture.connect("own", "postgres"));
}

fn crashes_during_copies_are_harmless(major: u32) {
    let fixture = open(major);
    // The server ends its own processes when one of them is killed.
    lease_while(&fixture, "COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'", Duration::from_millis(200));
}

fn abandoned_copies_leave_no_files(major: u32) {
    let fixture = open(major);
    let end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    lease_while(&fixture, end_all, Duration::from_millis(7));
    fixture.server.leases.close();
    let known = fixture.server.admin("SELECT oid FROM pg_database").concat();
    let base = fixture.server.started.server.run().data().join("base");
    let directories = fs::read_dir(base).unwrap().map(|entry| entry.unwrap().file_name());
    let is_known =
        |name: &OsString| name == "pgsql_tmp" || known.iter().flatten().any(|oid| name == oid.as_str());
    let stray: Vec<_> = directories.filter(|name| !is_known(name)).collect();
    assert!(stray.is_empty(), "{stray:?}");
}

/// Leases databases consecutively without releasing any, while a superuser runs `sql` at intervals of `every`.
fn lease_while(fixture: &DigestFixture, sql: &str, every: Duration) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // A signal might end the session, or the session might end with the server.
                let _ = fixture
                    .server
                    .started
                    .server
                    .session("postgres")
                    .and_then(|mut session| Ok(session.query(sql)?));
                thread::sleep(every);
            }
        });
        let served =
            (0..depth::rounds(60)).filter(|lease| fixture.expect_fresh(&format!("lease_{lease}")).is_ok());
        let served = served.count();
        over.store(true, Ordering::Relaxed);
        assert!(served > 0);
    });
    wait_until("a lease in peace", || fixture.expect_fresh("peace").is_ok());
}

#[test]
fn the_server_copies_with_a_damaged_cache() {
    let fixture = open(15);
    let entry = fixture.server.started.entry.as_ref().unwrap();
    let oid =
        fixture.server.admin(&format!("SELECT oid FROM pg_database WHERE datname = '{TEMPLATE}'")).concat();
    let version = entry.data().join(format!("base/{}/PG_VERSION", oid[0].as_deref().unwrap()));
    fs::set_permissions(&version, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&version, "14\n").unwrap();
    for lease in 0..4 {
        fixture.expect_fresh(&format!("lease_{lease}")).unwrap();
    }
    wait_until("a copy by the server", || fixture.made_by_sql() > 0);
}
