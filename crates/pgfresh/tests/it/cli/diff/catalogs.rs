//! Tests that the difference includes each catalog column that a statement can change, on each major.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::DatabaseDiff;
use diff::{DiffLimits, NOT_COMPARED, format_diff};
use lease::Isolation;
use server::AdminConnection;
use template::ServerOptions;

use crate::common::depth::some_of;
use crate::common::leases::LeaseFixture;
use crate::common::{on_every_major, postgres};

const TEMPLATE: &str = include_str!("catalogs_template.sql");
/// Edits, each a line with one or more statements. Edits after a line `-- from N` are for majors from N on.
const EDITS: &str = include_str!("catalogs_edits.sql");

/// Compared columns that a test's statements can't change: catalog, column, reason.
const FIXED: &[(&str, &str, &str)] = &[
    ("pg_class", "relisshared", "initdb makes shared catalogs"),
    ("pg_class", "reltablespace", "a tablespace needs a directory of the server"),
    ("pg_database", "datcollate", "CREATE DATABASE sets it"),
    ("pg_database", "datctype", "CREATE DATABASE sets it"),
    ("pg_database", "daticulocale", "CREATE DATABASE sets it"),
    ("pg_database", "daticurules", "CREATE DATABASE sets it"),
    ("pg_database", "datlocale", "CREATE DATABASE sets it"),
    ("pg_database", "datlocprovider", "CREATE DATABASE sets it"),
    ("pg_database", "dattablespace", "a tablespace needs a directory of the server"),
    ("pg_database", "encoding", "CREATE DATABASE sets it"),
    ("pg_extension", "extcondition", "scripts of extensions set it"),
    ("pg_extension", "extconfig", "scripts of extensions set it"),
    ("pg_extension", "extname", "plpgsql, the only extension here, has one name"),
    ("pg_extension", "extnamespace", "plpgsql, the only extension here, has one schema"),
    ("pg_extension", "extrelocatable", "the control file of the extension sets it"),
    ("pg_extension", "extversion", "plpgsql, the only extension here, has one version"),
    ("pg_inherits", "inhdetachpending", "is set where DETACH PARTITION CONCURRENTLY was cancelled"),
    ("pg_init_privs", "privtype", "only initdb sets another value"),
    ("pg_language", "lanispl", "initdb makes the others"),
    ("pg_range", "rngconstruct2", "CREATE TYPE makes a function with the name of the type"),
    ("pg_range", "rngconstruct3", "CREATE TYPE makes a function with the name of the type"),
    ("pg_range", "rngmltconstruct0", "CREATE TYPE makes a function with the name of the type"),
    ("pg_range", "rngmltconstruct1", "CREATE TYPE makes a function with the name of the type"),
    ("pg_range", "rngmltconstruct2", "CREATE TYPE makes a function with the name of the type"),
    ("pg_seclabel", "label", "a security label needs a library"),
    ("pg_seclabel", "provider", "a security label needs a library"),
    ("pg_shseclabel", "label", "a security label needs a library"),
    ("pg_shseclabel", "provider", "a security label needs a library"),
    ("pg_subscription_rel", "srrelid", "needs a publisher"),
    ("pg_subscription_rel", "srsublsn", "needs a publisher"),
    ("pg_subscription_rel", "srsubstate", "needs a publisher"),
];

fn fixture(major: u32) -> LeaseFixture {
    let installation = postgres(major).parse().unwrap();
    let options = ServerOptions { installation, ..ServerOptions::default() };
    LeaseFixture::new(options, TEMPLATE, Duration::from_mins(10), false)
}

fn edits(major: u32) -> Vec<&'static str> {
    let mut from = 0;
    let mut found = Vec::new();
    for line in EDITS.lines() {
        match line.strip_prefix("-- from ") {
            Some(first) => from = first.parse().unwrap(),
            None if from <= major => found.push(line),
            None => {}
        }
    }
    found
}

fn ask(session: &mut AdminConnection, sql: &str) -> Vec<Vec<String>> {
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect()
}

fn is_listed(list: &[(&str, &str, &str)], catalog: &str, column: &str) -> bool {
    list.iter().any(|(c, n, _)| (*c == catalog || *c == "*") && (*n == column || *n == "*"))
}

/// Returns the compared columns of each catalog on the server.
fn columns(session: &mut AdminConnection) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let rows = ask(
        session,
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
         WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, a.attnum",
    );
    for row in rows.into_iter().filter(|row| !is_listed(NOT_COMPARED, &row[0], &row[1])) {
        found.entry(row[0].clone()).or_default().push(row[1].clone());
    }
    found
}

/// Returns a catalog's row count, and a digest of each column.
fn digests(session: &mut AdminConnection, catalog: &str, columns: &[String]) -> Vec<String> {
    let this = "(SELECT oid FROM pg_database WHERE datname = current_database())";
    let rows = match catalog {
        "pg_database" => format!("oid = {this}"),
        "pg_db_role_setting" => format!("setdatabase = {this}"),
        "pg_shdescription" => format!("objoid = {this}"),
        _ => "true".to_owned(),
    };
    let digest = |column: &String| format!("coalesce(sum(hashtextextended({column}::text, 0)), 0)");
    let digests: Vec<_> = columns.iter().map(digest).collect();
    ask(session, &format!("SELECT count(*), {} FROM {catalog} WHERE {rows}", digests.join(", ")))
        .swap_remove(0)
}

/// Returns the columns whose values differ after `edit`, in catalogs that still have as many rows as before, because
/// created rows don't prove anything about a column. A first row also counts if the template can't have rows in that
/// catalog on each major.
fn changed_by(
    edit: &str,
    session: &mut AdminConnection,
    columns: &BTreeMap<String, Vec<String>>,
    before: &BTreeMap<String, Vec<String>>,
) -> BTreeSet<(String, String)> {
    ask(session, &format!("BEGIN; {edit}"));
    let is_touched = |catalog: &String| {
        format!(
            "SELECT '{catalog}' WHERE EXISTS (SELECT FROM {catalog} WHERE xmin = pg_current_xact_id()::xid)"
        )
    };
    let touched: Vec<_> = columns.keys().map(is_touched).collect();
    let mut found = BTreeSet::new();
    for catalog in ask(session, &touched.join(" UNION ALL ")).into_iter().flatten() {
        let after = digests(session, &catalog, &columns[&catalog]);
        let has_no_rows = ["pg_publication_namespace", "pg_subscription"].contains(&&*catalog);
        if after[0] != before[&catalog][0] && !has_no_rows {
            continue;
        }
        let pairs = after.iter().zip(&before[&catalog]).skip(1).zip(&columns[&catalog]);
        let changed = pairs.filter(|((after, before), _)| after != before);
        found.extend(changed.map(|(_, column)| (catalog.clone(), column.clone())));
    }
    ask(session, "ROLLBACK");
    found
}

fn an_edit_changes_every_column_of_every_catalog(major: u32) {
    let fixture = fixture(major);
    let (name, _) = fixture.leases.lease(Isolation::Clone, None, Some("app")).unwrap();
    let mut inspected = fixture.leases.inspect(&name).unwrap();
    let session = &mut inspected.session;
    ask(session, "SET search_path = public");
    let columns = columns(session);
    let before =
        columns.iter().map(|(name, columns)| (name.clone(), digests(session, name, columns))).collect();
    let mut changed = BTreeSet::new();
    for edit in edits(major) {
        changed.extend(changed_by(edit, session, &columns, &before));
    }
    let all =
        columns.iter().flat_map(|(catalog, columns)| columns.iter().map(move |column| (catalog, column)));
    let missing: Vec<_> = all
        .filter(|(catalog, column)| !is_listed(FIXED, catalog, column))
        .filter(|(catalog, column)| !changed.contains(&((*catalog).clone(), (*column).clone())))
        .collect();
    assert!(missing.is_empty(), "PostgreSQL {major}: no edit changes {missing:?}");
    let superfluous: Vec<_> =
        FIXED.iter().filter(|(c, n, _)| changed.contains(&((*c).to_owned(), (*n).to_owned()))).collect();
    assert!(superfluous.is_empty(), "PostgreSQL {major}: an edit changes {superfluous:?}");
}

fn compare(fixture: &LeaseFixture, fresh: &str, name: &str) -> DatabaseDiff {
    let [template, database] = [fresh, name].map(|name| fixture.leases.inspect(name).unwrap());
    diff::compare(template.session, database.session, &DiffLimits::default()).unwrap()
}

fn an_edit_of_any_catalog_is_found(major: u32) {
    let fixture = fixture(major);
    let [fresh, other] =
        [(); 2].map(|()| fixture.leases.lease(Isolation::Clone, None, Some("app")).unwrap().0);
    assert!(compare(&fixture, &fresh, &other).is_empty(), "PostgreSQL {major}: two copies");
    for edit in some_of(edits(major)) {
        let (name, _) = fixture.leases.lease(Isolation::Clone, None, Some("app")).unwrap();
        let mut inspected = fixture.leases.inspect(&name).unwrap();
        ask(&mut inspected.session, &format!("SET search_path = public; {edit}"));
        let found = compare(&fixture, &fresh, &name);
        assert!(!found.schema.is_empty(), "PostgreSQL {major}: {edit}\n{}", format_diff(&found, 80));
        assert!(found.not_compared.is_empty(), "PostgreSQL {major}: {edit}\n{}", format_diff(&found, 80));
        if edit.starts_with("CREATE SUBSCRIPTION") {
            ask(&mut inspected.session, "ALTER SUBSCRIPTION sub SET (slot_name = NONE)");
            ask(&mut inspected.session, "DROP SUBSCRIPTION sub");
        }
        drop(inspected);
        fixture.leases.release(&name).unwrap();
    }
}

on_every_major! {
    an_edit_changes_every_column_of_every_catalog
    an_edit_of_any_catalog_is_found
}
