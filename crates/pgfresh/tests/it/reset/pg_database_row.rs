//! Tests a database's row in `pg_database`, which a superuser can change from within the database. The next client
//! sees the template's values.

use super::{BRIEF, Findings};
use crate::common::gateway::Gateway;
use crate::common::{majors_since, on_every_major};

on_every_major! {
    each_column_of_pg_database_is_restored
}

/// Columns that differ between databases, or change by themselves.
const OWN: [&str; 4] = ["oid", "datname", "datfrozenxid", "datminmxid"];

/// Number of later leases after each change. One of them gets the changed database, unless pgfresh has dropped it.
const LATER: usize = 4;

/// Returns a value for the column that no template has.
fn other_value(column: &str) -> &'static str {
    match column {
        "datdba" => "'pg_monitor'::regrole",
        "encoding" => "0",
        "datcollate" => "CASE datcollate WHEN 'C' THEN 'POSIX' ELSE 'C' END",
        "datctype" => "CASE datctype WHEN 'C' THEN 'POSIX' ELSE 'C' END",
        "datistemplate" => "NOT datistemplate",
        "datallowconn" => "NOT datallowconn",
        "dathasloginevt" => "NOT dathasloginevt",
        "datconnlimit" => "50",
        "datlastsysoid" => "1",
        "datlocprovider" => "'i'",
        "datlocale" | "daticulocale" => "'en'",
        "daticurules" => "'&a < g'",
        "datcollversion" => "'9'",
        "datacl" => "'{=c/postgres}'",
        other => panic!("the column {other} of pg_database is new: what is another value of it?"),
    }
}

fn each_column_of_pg_database_is_restored(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (id int)", &[]);
    let own = OWN.join(",");
    let row = format!(
        "SELECT to_jsonb(d) - '{{{own}}}'::text[] FROM pg_database d WHERE datname = current_database()"
    );
    let columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_database'::regclass AND attnum > 0 \
        AND NOT attisdropped ORDER BY attnum";
    let columns: Vec<String> =
        gateway.direct("postgres", columns).unwrap().into_iter().flatten().flatten().collect();
    let mut findings = Findings::new(gateway.connect_in_time("untouched", BRIEF).value(&row).unwrap());
    // A database's files are in its tablespace, so a database with another tablespace is unusable.
    let is_changed = |column: &&String| !OWN.contains(&column.as_str()) && *column != "dattablespace";
    for column in columns.iter().filter(is_changed) {
        let change = format!(
            "UPDATE pg_database SET {column} = {} WHERE datname = current_database()",
            other_value(column)
        );
        let mut session = gateway.connect_in_time(&format!("changes_{column}"), BRIEF);
        session.rows(&change).unwrap_or_else(|error| panic!("{change} on PostgreSQL {major}: {error}"));
        session.close();
        for later in 0..LATER {
            let name = format!("after_{column}_{later}");
            findings.note(&name, gateway.connect(&name, BRIEF), &row);
        }
    }
    findings.assert_none();
}

/// PostgreSQL versions before 15 don't store the collation version of a database.
#[test]
fn a_refreshed_collation_version_is_restored() {
    majors_since(15).into_iter().for_each(refresh_collation_version);
}

fn refresh_collation_version(major: u32) {
    // Simulates an upgrade of the system's C library after the template's setup.
    let template = "UPDATE pg_database SET datcollate = 'C', datctype = 'C', datcollversion = '9' \
        WHERE datname = current_database()";
    let gateway = Gateway::start(major, template, &[]);
    let version = "SELECT datcollversion FROM pg_database WHERE datname = current_database()";
    let mut findings = Findings::new("9");
    for round in 0..6 {
        let name = format!("refreshes_{round}");
        let Some(mut session) = findings.note(&name, gateway.connect(&name, BRIEF), version) else {
            continue;
        };
        let refresh = format!("ALTER DATABASE {name} REFRESH COLLATION VERSION");
        session
            .rows(&refresh)
            .or_else(|_| {
                session
                    .rows("UPDATE pg_database SET datcollversion = NULL WHERE datname = current_database()")
            })
            .unwrap();
        session.close();
    }
    findings.assert_none();
}
