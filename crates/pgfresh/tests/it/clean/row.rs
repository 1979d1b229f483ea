//! A database's own row in `pg_database`, which a superuser can change from within it: nothing of that is there for the next
//! client of the database.

use super::{BRIEF, Findings};
use crate::common::gateway::Gateway;
use crate::common::on_every_major;

on_every_major! {
    each_column_of_a_databases_row_is_that_of_the_template
    what_refreshing_a_collation_version_changes_does_not_stay
}

/// What each database has of its own, and what changes by itself.
const OWN: [&str; 4] = ["oid", "datname", "datfrozenxid", "datminmxid"];

/// Names later leases after each change: among them is one of the database that was changed, if it was not dropped.
const LATER: usize = 4;

/// Another value of a column than any that it has in a template.
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

fn each_column_of_a_databases_row_is_that_of_the_template(major: u32) {
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
    // The files of a database are in its tablespace: with another one it cannot be used at all.
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

/// Before 15 a database has no such version.
fn what_refreshing_a_collation_version_changes_does_not_stay(major: u32) {
    if major < 15 {
        return;
    }
    // As after an upgrade of the system's C library, of which a template in the cache does not hear.
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
