//! Tests `--redact`: no planted value is in the file, and the file's tokens keep the order of the values.

use std::fs;

use super::{run, scene, statistics};
use crate::common::on_every_major;

/// Values in the schema, some of them only as the part that PostgreSQL prints. The second list needs
/// `--redact` for two columns.
const PLANTED: &[&str] = &[
    "ommon-secret-01",
    "secret-02",
    "secret-03",
    "secret-04",
    "secret-05",
    "secret-07",
    "1907-03-05",
    "198.51.100.",
    "491511234",
    "7 days 01:02:03",
    "77700",
    "88849",
];
const PLANTED_IN_LISTED: &[&str] = &["secret-06", "secret-08"];
/// Values in expressions, which statistics can contain from version 14 on.
const PLANTED_IN_EXPRESSIONS: &[&str] = &["secret-09", "secret-10"];

on_every_major! {
    redacted_files_have_no_planted_value
}

fn redacted_files_have_no_planted_value(major: u32) {
    let scene = scene();
    let extend = "CREATE STATISTICS pairs ON (email || ''secret-09''), (length(full_name)), country FROM users;
        CREATE INDEX users_case ON users ((CASE WHEN email = ''secret-10'' THEN 1 ELSE 0 END)); ANALYZE users";
    let extend = if major >= 14 { extend.replace("''", "'") } else { String::new() };
    scene.write("extend.sql", &extend);
    let script = "psql -Xqf extend.sql
        import=\"$pgfresh template import\"
        $import --redact none --statistics \"$DATABASE_URL\" >open
        $import -vv --redact 'public.users.n?ck,Visits.remark' --statistics \"$DATABASE_URL\" >live
        $import --redact public.users.nick --redact visits.remark --statistics open >again
        $import --redact none --statistics again >copied
        $import --redact all --statistics open >all";
    let outcome = run(&scene, major, script);
    let read = |name: &str| fs::read_to_string(scene.directory.join(name)).unwrap();
    let (open, live) = (read("open"), read("live"));
    let mut planted = [PLANTED, PLANTED_IN_LISTED].concat();
    planted.extend(PLANTED_IN_EXPRESSIONS.iter().filter(|_| major >= 14));
    for value in planted {
        assert!(open.contains(value), "{value} is not planted");
        for (name, text) in [("live", &live), ("again", &read("again")), ("stderr", &outcome.stderr)] {
            assert!(!text.contains(value), "{value} in {name}");
        }
    }
    let mut redacted = (statistics(&scene, "live"), statistics(&scene, "again"));
    redacted.0.taken = redacted.1.taken;
    assert_eq!(redacted.0, redacted.1);
    assert_eq!(read("again"), read("copied"));
    // The planner's numbers stay, and so do columns without personal data.
    let (before, after) = (statistics(&scene, "open"), redacted.0);
    for (before, after) in before.relations.iter().zip(&after.relations) {
        for (before, after) in before.columns.iter().zip(&after.columns) {
            let numbers =
                |column: &plans::ColumnStatistics| (column.null_fraction, column.width, column.distinct);
            assert_eq!(numbers(before), numbers(after));
            assert!(after.redacted || before == after, "{after:?}");
        }
    }
    let all = statistics(&scene, "all");
    assert!(all.relations.iter().flat_map(|relation| &relation.columns).all(|column| column.redacted));
    assert!(!read("all").contains("2026-"), "a date");
}

/// The planner compares tokens with the column's collation. Only Hawaiian sorts all vowels before all consonants.
#[test]
fn tokens_sort_alike_in_every_collation() {
    let scene = scene();
    let script = "$pgfresh template import --statistics \"$DATABASE_URL\" >file";
    run(&scene, 15, script);
    let file = statistics(&scene, "file");
    let users = file.relations.iter().find(|relation| relation.name == "users").unwrap();
    let bounds = |column: &str, kind: i16| {
        let column = users.columns.iter().find(|one| one.column == column).unwrap();
        column.slots.iter().find(|slot| slot.kind == kind).unwrap().values.clone().unwrap()
    };
    let lists = [bounds("full_name", 2), bounds("email", 2), bounds("search", 4)];
    assert!(lists.iter().all(|list| list.len() > 10), "{lists:?}");
    // A collation can't be a parameter, so a loop puts its name into the statement.
    let list =
        lists.iter().map(|list| format!("('{{{}}}'::text[])", list.join(","))).collect::<Vec<_>>().join(", ");
    scene.write(
        "order.sql",
        &format!(
            "DO $$ DECLARE c record; list text[]; sorted text[]; many int := 0; BEGIN
            FOR c IN SELECT oid::regcollation AS name FROM pg_collation
                WHERE collencoding IN (-1, pg_char_to_encoding('UTF8')) AND collprovider IN ('c', 'i')
                AND collname !~ '^haw' LOOP
                many := many + 1;
                FOR list IN SELECT unnested FROM (VALUES {list}) lists(unnested) LOOP
                    EXECUTE format('SELECT array_agg(x ORDER BY x COLLATE %s) FROM unnest($1) x', c.name)
                        INTO sorted USING list;
                    IF sorted <> list THEN RAISE 'order of % in %', list, c.name; END IF;
                END LOOP;
            END LOOP;
            IF many < 500 THEN RAISE 'only % collations', many; END IF;
            END $$"
        ),
    );
    run(&scene, 15, "psql -Xqf order.sql -v ON_ERROR_STOP=1");
}
