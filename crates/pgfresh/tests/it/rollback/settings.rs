//! Tests that settings in rollback isolation are the same as on a plain server after each transaction,
//! whatever has changed them.

use super::plain_answers::description_of;
use super::{SCHEMA, Serve, bind, execute, majors, message, parse, query, start_on, sync};
use crate::common::client::Client;
use crate::common::depth;
use crate::common::random::Random;

/// Objects that change settings, either for the transaction or for the session.
const OBJECTS: &str = "
CREATE FUNCTION tenant(int) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN PERFORM set_config('app.tenant', $1::text, true); RETURN current_setting('app.tenant'); END $$;
CREATE FUNCTION zone(text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('timezone', $1, false) $$;
CREATE FUNCTION sets() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN SET LOCAL datestyle = 'German'; EXECUTE 'SET LOCAL app.made = ' || quote_literal('k'); END $$;
CREATE FUNCTION within() RETURNS text LANGUAGE sql SET intervalstyle = 'iso_8601' AS $$ SELECT 'x'::text $$;
CREATE VIEW tenants AS SELECT set_config('app.seen', '7', true) AS seen;
CREATE TABLE checked (id int DEFAULT set_config('app.default', '5', true)::int,
    CHECK (set_config('app.checked', id::text, true) IS NOT NULL));
CREATE FUNCTION login(text) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN PERFORM set_config('app.name', $1, false); END $$;
CREATE FUNCTION act_as(text) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN PERFORM set_config('app.name', $1, true); END $$;
CREATE FUNCTION keep(text, text) RETURNS text LANGUAGE sql AS $$ SELECT set_config($1, $2, false) $$;
CREATE FUNCTION lend(text, text) RETURNS text LANGUAGE sql AS $$ SELECT set_config($1, $2, true) $$;
CREATE FUNCTION lends() RETURNS text LANGUAGE sql AS $$ SELECT lend('work_mem', '55kB') $$;
CREATE PROCEDURE logs_in() LANGUAGE plpgsql AS $$ BEGIN PERFORM login('ann'); END $$;
CREATE TABLE late (n int);
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    SET LOCAL extra_float_digits = 0; PERFORM set_config('app.late', '1', true); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
";

/// Query that shows the session's settings.
const PROBE: &str = "SELECT current_user, session_user, current_setting('work_mem'), current_setting('timezone'), \
    current_setting('datestyle'), current_setting('intervalstyle'), current_setting('statement_timeout'), \
    coalesce(current_setting('app.tenant', true), ''), coalesce(current_setting('app.kind', true), ''), \
    coalesce(current_setting('app.seen', true), ''), coalesce(current_setting('app.checked', true), ''), \
    coalesce(current_setting('app.default', true), ''), coalesce(current_setting('app.made', true), ''), \
    coalesce(current_setting('app.name', true), ''), \
    coalesce(current_setting('app.late', true), ''), current_setting('extra_float_digits'), \
    current_setting('search_path'), current_setting('client_encoding'), current_setting('xmloption'), \
    current_setting('default_transaction_deferrable'), coalesce(current_setting('app.a.kind', true), ''), \
    coalesce(current_setting('time.zone', true), ''), coalesce(current_setting('session.kind', true), '')";

fn start(major: u32) -> Serve {
    start_on(major, &format!("{SCHEMA}{OBJECTS}"), &[])
}

/// A session in rollback isolation, and a session on a plain server.
struct Pair {
    rollback: Client,
    plain: Client,
}

impl Pair {
    fn new(serve: &Serve, number: u32) -> Self {
        let plain = serve.connect(&format!("plain_{number}"), "-c pgfresh.linger=0").unwrap();
        Self { rollback: serve.rollback("rollback"), plain }
    }

    /// Sends `bytes` to both sides, whose responses must be the same.
    fn ask(&mut self, bytes: &[u8], said: &str) {
        let [found, expected] = [&mut self.rollback, &mut self.plain].map(|client| {
            client.send(bytes);
            let mut all: Vec<_> = client.until_ready().iter().map(description_of).collect();
            // PostgreSQL 13 repeats reports, and their order depends on all earlier settings.
            all.retain(|message| !message.starts_with("S "));
            all
        });
        assert_eq!(found, expected, "{said}");
    }

    fn close(mut self) {
        self.ask(&query("ROLLBACK"), "the end");
        self.rollback.close();
        self.plain.close();
    }
}

/// Sessions, statement by statement.
const CASES: [&[&str]; 37] = [
    &[
        "BEGIN",
        "SELECT set_config('role', 'pg_monitor', false)",
        "SELECT set_config('role', 'none', true)",
        "SELECT set_config('role', 'none', false)",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "SELECT set_config('app.tenant', '1', true), set_config('role', 'pg_monitor', true)",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "SELECT set_config('role', 'pg_monitor', true), set_config('work_mem', '77kB', true)",
        "COMMIT",
    ],
    &["SELECT set_config('work_mem', '77kB', true), set_config('app.tenant', '1', false)"],
    &["BEGIN", "SELECT tenant(5)", "SELECT zone('CET')", "COMMIT"],
    &["BEGIN", "SELECT sets(), within()", "COMMIT"],
    &["SELECT sets()"],
    &["BEGIN", "TABLE tenants", "INSERT INTO checked DEFAULT VALUES", "COMMIT"],
    &["DO $$ BEGIN SET LOCAL work_mem = '77kB'; SET datestyle = 'SQL'; END $$"],
    &[
        "BEGIN",
        "SET work_mem = '1MB'",
        "SAVEPOINT a",
        "SET work_mem = '2MB'",
        "ROLLBACK TO a",
        "SET LOCAL work_mem = '3MB'",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "SET LOCAL work_mem = '1MB'",
        "SAVEPOINT a",
        "SET work_mem = '2MB'",
        "ROLLBACK TO a",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "SAVEPOINT a",
        "SET work_mem = '2MB'",
        "SET LOCAL work_mem = '3MB'",
        "SAVEPOINT \"A\"",
        "ROLLBACK TO a",
        "COMMIT",
    ],
    // The names differ in the first 63 bytes, which are all that the server keeps.
    &[
        "BEGIN",
        "SAVEPOINT a_savepoint_with_a_name_longer_than_the_63_bytes_that_postgresql_keeps",
        "SET work_mem = '2MB'",
        "SET LOCAL work_mem = '3MB'",
        "SAVEPOINT b_savepoint_with_a_name_longer_than_the_63_bytes_that_postgresql_keeps",
        "ROLLBACK TO a_savepoint_with_a_name_longer_than_the_63_bytes_that_postgresql_discards",
        "COMMIT",
    ],
    &["BEGIN", "SET LOCAL work_mem = '1MB'", "SELECT set_config('work_mem', '2MB', false)", "COMMIT"],
    &["BEGIN", "SELECT set_config('work_mem', '2MB', false)", "SET LOCAL work_mem = '1MB'", "COMMIT"],
    &["BEGIN", "SET LOCAL SESSION AUTHORIZATION pg_monitor", "COMMIT"],
    &["BEGIN", "SET LOCAL statement_timeout = '40s'", "RESET ALL", "COMMIT"],
    &["PREPARE p AS SELECT set_config($1, $2, true)", "BEGIN", "EXECUTE p('app.kind', 'x')", "COMMIT"],
    &[
        "BEGIN; SELECT set_config('work_mem', '77kB', true), set_config('role', 'pg_monitor', true); SHOW work_mem; COMMIT; SHOW work_mem",
    ],
    &[
        "CREATE FUNCTION later() RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.kind', 'l', true) $$",
        "BEGIN",
        "SELECT later()",
        "COMMIT",
    ],
    // A function for the session doesn't affect one for the transaction.
    &["SET app.name = 'ann'", "BEGIN", "SELECT act_as('root')", "COMMIT"],
    &["SELECT 1/0", "BEGIN", "SELECT act_as('root')", "COMMIT"],
    &["SELECT login('ann')", "BEGIN", "SELECT act_as('root')", "COMMIT"],
    &["BEGIN", "SELECT login('ann')", "SELECT act_as('root')", "COMMIT"],
    &["BEGIN", "SELECT act_as('root')", "SELECT login('ann')", "SELECT 1", "COMMIT"],
    &["SELECT keep('work_mem', '77kB')", "BEGIN", "SELECT lend('work_mem', '99kB')", "COMMIT"],
    &["SELECT keep('work_mem', '77kB')", "SELECT lends()"],
    &["INSERT INTO late VALUES (1)"],
    &["BEGIN", "INSERT INTO late VALUES (1)", "SET work_mem = '77kB'", "COMMIT"],
    &["UPDATE pg_settings SET setting = '77kB' WHERE name = 'work_mem'"],
    &[
        "BEGIN",
        "SET LOCAL work_mem = '99kB'",
        "UPDATE pg_catalog.pg_settings SET setting = '77kB' WHERE name IN ('work_mem')",
        "COMMIT",
    ],
    &["SELECT 1; PREPARE p(text) AS SELECT act_as($1)", "SELECT login('ann')", "EXECUTE p('root')"],
    &["BEGIN", "DO $$ BEGIN PERFORM act_as('root'); END $$", "CALL logs_in()", "COMMIT"],
    &["BEGIN", "SELECT sets()", "UPDATE pg_settings SET setting = '88kB' WHERE name = 'work_mem'", "COMMIT"],
    &[
        "BEGIN",
        "CREATE FUNCTION act_as() RETURNS text LANGUAGE sql AS $$ SELECT set_config('work_mem', '1MB', true) $$",
        "SELECT act_as()",
        "INSERT INTO late VALUES (1)",
        "COMMIT",
    ],
    &["PREPARE p(bool) AS SELECT set_config('work_mem', '77kB', $1)", "EXECUTE p(true)"],
    &[
        "PREPARE p(text, bool) AS SELECT set_config($1, '77kB', cast($2 as bool))",
        "SET work_mem = '99kB'",
        "EXECUTE p('work_mem', 'f')",
        "BEGIN",
        "EXECUTE p('app.kind', 't')",
        "COMMIT",
    ],
];

/// Arguments that tell `set_config` to change a setting for the transaction.
const LOCAL: [&str; 8] = [
    "true",
    "(true)",
    "cast('on' as boolean)",
    "bool 'yes'",
    "not false",
    "((select true))",
    "CAST(cast('t' AS text) AS bool)",
    "is_local => ' TR '::text::bool",
];

#[test]
fn any_spelling_of_local_ends_with_transaction() {
    for major in majors() {
        let serve = start(major);
        let mut pair = Pair::new(&serve, 0);
        for local in LOCAL {
            let sql = format!("SELECT set_config('work_mem', '77kB', {local})");
            pair.ask(&query(&sql), &sql);
            pair.ask(&query(PROBE), &format!("the settings after {sql} on PostgreSQL {major}"));
        }
        pair.close();
    }
}

/// What can follow SET, SET LOCAL and SET SESSION.
const FORMS: [&str; 13] = [
    "TIME ZONE 'CET'",
    "SCHEMA 'pg_catalog'",
    "NAMES 'LATIN1'",
    "XML OPTION DOCUMENT",
    "ROLE pg_monitor",
    "SESSION AUTHORIZATION pg_monitor",
    "SESSION CHARACTERISTICS AS TRANSACTION DEFERRABLE",
    "session_authorization = 'pg_monitor'",
    "\"App\".\"KIND\" = 'x'",
    "app.a.kind = 'x'",
    "\"app.kind\" TO 'x'",
    "time.zone = 'x'",
    "session.kind = 'x'",
];

#[test]
fn every_form_of_set_lasts_as_long() {
    for major in majors() {
        let serve = start(major);
        let mut number = 0;
        for form in FORMS {
            for [scope, other] in [["LOCAL ", ""], ["SESSION ", "LOCAL "], ["", "LOCAL "]] {
                let (set, other) = (format!("SET {scope}{form}"), format!("SET {other}work_mem = '77kB'"));
                for case in [
                    vec!["BEGIN".to_owned(), set.clone(), other.clone(), "COMMIT".to_owned()],
                    vec![format!("DO $$ BEGIN {set}; {other}; END $$")],
                    vec![format!("DO $$ BEGIN EXECUTE {}; END $$", quoted(&set)), other.clone()],
                ] {
                    let mut pair = Pair::new(&serve, number);
                    number += 1;
                    for sql in &case {
                        pair.ask(&query(sql), &format!("{sql} of {case:?} on PostgreSQL {major}"));
                    }
                    pair.ask(&query(PROBE), &format!("the settings after {case:?} on PostgreSQL {major}"));
                    pair.close();
                }
            }
        }
    }
}

/// Returns an SQL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[test]
fn settings_of_a_transaction_end_with_it() {
    for major in majors() {
        let serve = start(major);
        for (number, case) in (0..).zip(CASES) {
            let mut pair = Pair::new(&serve, number);
            for sql in case {
                pair.ask(&query(sql), &format!("{sql} of {case:?} on PostgreSQL {major}"));
            }
            pair.ask(&query(PROBE), &format!("the settings after {case:?} on PostgreSQL {major}"));
            pair.close();
        }
    }
}

#[test]
fn parameters_name_settings_and_their_scope() {
    for major in majors() {
        let serve = start(major);
        let mut pair = Pair::new(&serve, 0);
        for (number, (local, call)) in (0..).zip(
            ["$3::bool", "cast($3 as boolean)", "NOT CAST($3 AS bool)"]
                .iter()
                .flat_map(|scope| ["true", "f"].map(|local| (local, format!("set_config($1, $2, {scope})")))),
        ) {
            let values: Vec<u8> = ["app.kind", &format!("x{number}"), local]
                .iter()
                .flat_map(|value| {
                    [&u32::try_from(value.len()).unwrap().to_be_bytes()[..], value.as_bytes()].concat()
                })
                .collect();
            let body = [b"\0\0\0\0\0\x03", &values[..], b"\0\0"].concat();
            let call = &format!("SELECT {call}");
            let said = [parse("", call), message(b'B', &body), execute(""), sync()].concat();
            pair.ask(&query("BEGIN"), "begin");
            pair.ask(&said, call);
            pair.ask(&[parse("", "COMMIT"), bind("", ""), execute(""), sync()].concat(), "commit");
            pair.ask(&query(PROBE), &format!("the settings after {call} with {local} on PostgreSQL {major}"));
        }
        pair.close();
    }
}

/// Returns statements that change a setting. No statement changes the same setting in both scopes.
fn change(random: &mut Random) -> String {
    let one = |random: &mut Random| {
        let (name, value) = *random.choose(&[
            ("work_mem", "77kB"),
            ("work_mem", "99kB"),
            ("timezone", "CET"),
            ("app.name", "1"),
            ("app.kind", "2"),
            ("role", "pg_monitor"),
            ("role", "none"),
            ("statement_timeout", "70s"),
        ]);
        let local = random.chance(60);
        let scope = match (random.below(4), local) {
            (0, true) => *random.choose(&LOCAL[..6]),
            (0, false) => *random.choose(&["(false)", "cast('no' as boolean)", "not true"]),
            (_, true) => "true",
            (_, false) => "false",
        };
        match random.below(5) {
            0 => (format!("SET {} {name} = '{value}'", if local { "LOCAL" } else { "SESSION" }), false),
            1 => (format!("DO $$ BEGIN PERFORM set_config('{name}', '{value}', {scope}); END $$"), false),
            _ => (format!("set_config('{name}', '{value}', {scope})"), true),
        }
    };
    let (first, is_call) = one(random);
    if !is_call {
        return first;
    }
    let mut calls = vec![first];
    while random.chance(40) {
        calls.extend(Some(one(random)).filter(|(_, is_call)| *is_call).map(|(call, _)| call));
    }
    format!("SELECT {}", calls.join(", "))
}

/// Whether a statement changes a setting twice, for the transaction and for the session, which is the
/// limitation in docs/isolation.md.
fn is_limited(sql: &str) -> bool {
    let calls: Vec<&str> = sql.split("set_config(").skip(1).collect();
    let name = |call: &str| call.split('\'').nth(1).unwrap_or_default().to_owned();
    let is_true = |call: &str| ["true", "'on'", "'yes'"].iter().any(|word| call.contains(word));
    let local = |call: &str| is_true(call) != call.contains("not ");
    calls.iter().any(|one| calls.iter().any(|other| name(one) == name(other) && local(one) != local(other)))
}

#[test]
fn generated_setting_changes_last_as_on_plain_server() {
    for major in majors() {
        let serve = start(major);
        for case in 0..depth::rounds(20) {
            let seed = Random::new().number();
            let mut random = Random::seeded(seed);
            let mut pair = Pair::new(&serve, case);
            let mut said = Vec::new();
            for _ in 0..12 {
                let sql = match random.below(10) {
                    0 | 1 => "BEGIN".to_owned(),
                    2 | 3 => "COMMIT".to_owned(),
                    4 => (*random.choose(&[
                        "ROLLBACK",
                        "SAVEPOINT a",
                        "SAVEPOINT \"A\"",
                        "RELEASE a",
                        "SELECT 1/0",
                    ]))
                    .to_owned(),
                    5 => (*random.choose(&[
                        "ROLLBACK TO a",
                        "ROLLBACK TO \"A\"",
                        "SELECT tenant(3)",
                        "SELECT sets()",
                        "SELECT login('ann')",
                        "SELECT act_as('root')",
                        "INSERT INTO late VALUES (1)",
                        "UPDATE pg_settings SET setting = '88kB' WHERE name = 'work_mem'",
                    ]))
                    .to_owned(),
                    _ => change(&mut random),
                };
                if is_limited(&sql) {
                    continue;
                }
                said.push(sql.clone());
                let why = format!("seed {seed}, {said:#?} on PostgreSQL {major}");
                if random.chance(70) {
                    pair.ask(&query(&sql), &why);
                } else {
                    pair.ask(&[parse("", &sql), bind("", ""), execute(""), sync()].concat(), &why);
                }
                pair.ask(&query(PROBE), &why);
            }
            pair.close();
        }
    }
}
