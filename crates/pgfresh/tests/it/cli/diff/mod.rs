//! Tests that `pgfresh diff` prints exactly the changes in a database.

mod catalogs;
mod generated;

use std::fs;

use crate::common::{Outcome, Scene, User, ground, on_every_major, postgres};
use serde_json::Value;

const TEMPLATE: &str = include_str!("template.sql");
const EDITS: &str = include_str!("edits.sql");

fn project(template: &str) -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template.app]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", template);
    scene.write("edits.sql", EDITS);
    scene
}

/// Runs `script` while a server is running. The script can call the functions `psql` and `pgfresh`.
fn script(scene: &Scene, options: &[&str], script: &str) -> Outcome {
    let (program, psql) = (ground::program().display(), ground::psql());
    let functions = format!(
        "pgfresh() {{ '{program}' \"$@\"; }}\n\
         in_database() {{ name=$1; shift; '{psql}' -XAtqv ON_ERROR_STOP=1 \"$(pgfresh url \"$name\")\" \"$@\"; }}\n"
    );
    scene.run([&["run"], options, &["--", "sh", "-euc", &format!("{functions}{script}")]].concat())
}

fn succeed(scene: &Scene, options: &[&str], text: &str) -> String {
    let outcome = script(scene, options, text);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome.stdout
}

/// Output for all edits, 80 columns wide.
const SHOWN: &str = r#"x differs from template "app": 11 tables, 1 sequence, 15 definitions

Definitions
  + column public.orders.extra: integer default 7
  ~ column public.orders.note: text → character varying
  + comment on table public.orders: hi
  + foreign table public.far_1: inherits public.far, FOR VALUES IN (1)
  + foreign-data wrapper nothing
  ~ function public.f(integer)  prosrc: 'SELECT 1' → 'SELECT 2'
  + grants on public.orders: {=r/postgres,postgres=GRANTS/postgres}
  + index public.orders_status_idx: CREATE INDEX orders_status_idx ON public.or…
  + large object 987654
  + server away
  + setting work_mem: 8MB
  + table public.fresh
  - table public.old
  ~ type public.mood: enum 'a', 'b' → enum 'a', 'b', 'c'
VIEW
Sequences
  ~ public.orders_id_seq: 20 → 21

public.orders: 1 inserted, 2 updated, 2 deleted
  ~ id=3  status: open → paid  total: 3.00 → 99.00  twice: 6.00 → 198.00
  ~ id=4  note: 'note 4' → NULL  picture: \x0102 → \x00
    doc: '{"a": 1}' → {"a":1}
  + id=21  status=new  total=1.50
    note=long long long long long long long … (500 chars)
    picture=\x00ff00ff00ff00ff00ff00ff00ff00ff0… (600 bytes)  doc=NULL
    twice=3.00  at='2026-01-01 00:00:00+00'  extra=7
  - id=7  status=open  total=7.00  note='note 7'  picture=\x0102  doc='{"a": 1}'
    twice=14.00  at='2026-01-01 00:00:00+00'
  - id=8  status=open  total=8.00  note='note 8'  picture=\x0102  doc='{"a": 1}'
    twice=16.00  at='2026-01-01 00:00:00+00'

public.part: 1 inserted, 1 updated, 1 deleted
  ~ region=us  id=2  v: 2 → 5
  + id=1  region=us  v=3
  - id=1  region=eu  v=1

public.fresh: 2 inserted
  + a=1  b={a,b}
  + a=2  b=NULL

public.log: 1 inserted, 1 deleted (no primary key: whole rows)
  + line='line 1'  place=(1,0)  markup=<a/>
  - line='line 0'  place=(0,0)  markup=<a/>

public.old: 2 deleted (no primary key: whole rows)
  - a=1
  - a=2

public.total: 1 inserted, 1 deleted (no primary key: whole rows)
  + count=19
  - count=20

pg_catalog.pg_largeobject: 1 inserted
  + loid=987654  pageno=0  data=\x0102

public."My ""T'able\nx": 1 updated
  ~ Co l=00000000-0000-0000-0000-000000000001  sel;ect: 'a\nb' → 'a\n\u{1b}[31m'

public.cached: 1 updated
  ~ id=1  v: one → two

public.empty: 1 inserted (no primary key: whole rows)
  + 

public.secret: 1 inserted
  + id=1  v=x

Not compared
  ! public.far: it has partitions on other servers
"#;

fn the_output_shows_each_change(major: u32) {
    let scene = project(TEMPLATE);
    let options = ["--postgres", &postgres(major)];
    let text = "in_database x -f edits.sql; pgfresh diff x; pgfresh diff x --json >json; pgfresh diff x >again; \
                in_database x -c 'SELECT count(*) FROM orders'";
    let shown = succeed(&scene, &options, text);
    let (shown, count) = shown.rsplit_once("\n19").unwrap();
    assert_eq!(count, "\n", "it has changed nothing");
    // The text of grants and views differs between majors.
    let lines = SHOWN.lines().map(|line| match line {
        "VIEW" => line_with(shown, "  ~ view public.ids: "),
        line if line.contains("GRANTS") => {
            line_with(shown, "  + grants on public.orders: {=r/postgres,postgres=")
        }
        line => line,
    });
    let expected: Vec<_> = lines
        .flat_map(|line| if line.starts_with("  ~ view") { vec![line, ""] } else { vec![line] })
        .collect();
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    assert_eq!(fs::read_to_string(scene.directory.join("again")).unwrap().trim_end(), shown.trim_end());
    let json: Value =
        serde_json::from_str(&fs::read_to_string(scene.directory.join("json")).unwrap()).unwrap();
    assert_eq!((json["database"].as_str(), json["template"].as_str()), (Some("x"), Some("app")));
    let orders = &json["tables"][0];
    assert_eq!(
        (&orders["inserted"], &orders["updated"], &orders["deleted"]),
        (&1.into(), &2.into(), &2.into())
    );
    let change = serde_json::json!({ "column": "status", "old": "open", "new": "paid" });
    assert_eq!(
        (&orders["rows"][0]["change"], &orders["rows"][0]["columns"][0]),
        (&"updated".into(), &change)
    );
    assert_eq!(orders["rows"][1]["columns"][0]["new"], Value::Null);
    let picture = &orders["rows"][2]["values"][4]["value"];
    assert_eq!((&picture["length"], &picture["bytes"]), (&600.into(), &true.into()));
}
on_every_major!(the_output_shows_each_change);

fn line_with<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin:?} in\n{text}"))
}

#[test]
fn kept_databases_are_compared_by_any_name() {
    let scene = project("CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1);");
    let text = "in_database x -c 'INSERT INTO one VALUES (42)'; pgfresh release x --failed --test 'a > b'; \
                pgfresh url y >/dev/null; in_database y -c 'DELETE FROM one'; pgfresh snapshot y gone; \
                pgfresh psql z -- -qc 'SELECT 1'; pgfresh url of_gone --of gone >/dev/null; \
                in_database of_gone -c 'INSERT INTO one VALUES (7)'; pgfresh release of_gone --failed";
    let outcome = script(&scene, &["--keep-failed"], text);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(
        outcome.stderr.contains("\nHINT:  \"pgfresh diff NAME\" shows what its test changed.\n"),
        "{outcome}"
    );
    let diff = |name: &str| {
        let outcome = scene.run(["diff", name]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stdout
    };
    let by_test = diff("a > b");
    let name = by_test.lines().nth(1).and_then(|line| line.split(' ').next()).unwrap();
    assert!(name.starts_with("a_b_failed_"), "{by_test}");
    let rows = "public.one: 1 inserted\n  + id=42\n";
    assert_eq!(by_test, format!("a > b\n{name} differs from template \"app\": 1 table\n\n{rows}"));
    assert_eq!(diff(name), by_test);
    let of_gone = diff("of_gone");
    assert!(
        of_gone.contains("differs from template \"gone\": 1 table\n\npublic.one: 1 inserted\n  + id=7\n"),
        "{of_gone}"
    );
    let outcome = scene.run(["stop"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let gone = scene.run(["diff", name]);
    assert_eq!(
        (gone.code, gone.stderr.lines().next()),
        (Some(1), Some("pgfresh: no server of this project is running")),
        "{gone}"
    );
}

#[test]
fn release_names_the_diff_command() {
    let scene = project("CREATE TABLE one (id int);");
    assert_eq!(scene.run(["url", "x"]).code, Some(0));
    let released = scene.run(["release", "x", "--failed"]);
    let name = line_with(&released.stderr, "HINT: ")
        .strip_prefix("HINT:  \"pgfresh diff ")
        .and_then(|rest| rest.strip_suffix("\" shows what its test changed."));
    let outcome = scene.run(["diff", name.unwrap_or_else(|| panic!("{released}"))]);
    assert_eq!(
        outcome.stdout,
        format!("x\n{} does not differ from template \"app\"\n", name.unwrap()),
        "{outcome}"
    );
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn one_table_is_compared_with_its_parts() {
    let scene = project(
        "CREATE TABLE kept (id int PRIMARY KEY, n int); CREATE TABLE gone (id int); \
         CREATE TABLE kept_too (id int); CREATE INDEX kept_n ON kept (n);",
    );
    let edits = "ALTER TABLE kept ADD m int; DROP INDEX kept_n; CREATE INDEX kept_n ON kept (n DESC); \
         ALTER TABLE kept ADD CONSTRAINT positive CHECK (n > 0); CREATE INDEX kept_m ON kept (m); DROP TABLE gone; \
         CREATE TABLE made (id int); ALTER TABLE kept_too ADD m int; INSERT INTO kept VALUES (1, 2, 3);";
    let shown = |table: &str| {
        let outcome =
            script(&scene, &[], &format!("in_database x -c '{edits}'; pgfresh diff x --table {table}"));
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let lines = outcome.stdout.lines().map(str::trim_start);
        lines.filter(|line| line.starts_with(['+', '-', '~'])).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    insta::assert_debug_snapshot!(["kept", "public.gone", "made"].map(shown));
}

#[test]
fn failed_comparisons_print_one_line() {
    let scene = project("CREATE TABLE one (id int PRIMARY KEY);");
    let said = |text: &str| {
        let outcome = script(&scene, &[], text);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        outcome.stderr
    };
    let unknown = said("pgfresh diff unheard_of");
    assert!(
        unknown.contains("pgfresh: no database \"unheard_of\" is leased or kept\nHINT:  \"pgfresh status\""),
        "{unknown}"
    );
    let table = said("pgfresh url x >url; pgfresh diff x --table two");
    assert!(
        table.contains("pgfresh: neither the database nor its template has a table \"two\"\n"),
        "{table}"
    );
    let template = said("pgfresh url x >url; pgfresh diff x --of two");
    assert!(template.contains("pgfresh: template \"two\" does not exist\n"), "{template}");
    let hidden = said(
        "curl -fsS -H \"Authorization: Bearer $PGPASSWORD\" \"http://$PGHOST:$PGPORT/v1/databases\" \
         -d '{\"name\": \"hidden\", \"isolation\": \"rollback\"}' >answer; pgfresh diff hidden",
    );
    assert!(
        hidden.contains("pgfresh: cannot read database \"hidden\": it is leased in isolation \"rollback\"\n"),
        "{hidden}"
    );
}

#[test]
fn a_comparison_does_not_disturb_its_lease() {
    let scene = project(
        "CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int PRIMARY KEY) PARTITION BY LIST (id); \
         CREATE TABLE two_1 PARTITION OF two FOR VALUES IN (1); CREATE VIEW all_ids AS SELECT id FROM one UNION TABLE two;",
    );
    // Uncommitted changes are invisible, and pgfresh reports the table that a client has locked.
    let text = "pgfresh url x >/dev/null; mkfifo pipe; in_database x <pipe & exec 3>pipe; \
        echo 'INSERT INTO one VALUES (1); BEGIN; INSERT INTO one VALUES (2); LOCK TABLE two; SELECT 1 \\g ready' >&3; \
        while ! test -s ready; do sleep 0.1; done; pgfresh diff x; exec 3>&-; wait; pgfresh diff x; pgfresh status";
    let shown = succeed(&scene, &[], text);
    let (during, after) =
        shown.split_once("x does not").map_or((&*shown, ""), |(during, after)| (during, after));
    assert!(after.is_empty(), "{shown}");
    assert!(during.contains("public.one: 1 inserted\n  + id=1\n"), "{shown}");
    assert!(
        during.contains("  ! public.two: the database says: canceling statement due to lock timeout\n"),
        "{shown}"
    );
    assert!(!during.contains("definitions"), "equal catalogs are compared without a lock: {shown}");
    assert!(shown.contains("database x: of app, 0 sessions"), "{shown}");
    assert_eq!(shown.matches("\ndatabase ").count(), 1, "the copy that was read is released: {shown}");
}

#[test]
fn a_leased_server_is_compared_with_its_template() {
    let scene = project("CREATE TABLE one (id int PRIMARY KEY);");
    let text = "curl -fsS -H \"Authorization: Bearer $PGPASSWORD\" \"http://$PGHOST:$PGPORT/v1/databases\" \
        -d '{\"name\": \"own\", \"isolation\": \"server\"}' >answer; \
        pgfresh psql own -- -qc 'INSERT INTO one VALUES (3)'; pgfresh diff own";
    let shown = succeed(&scene, &[], text);
    assert_eq!(shown, "own differs from template \"app\": 1 table\n\npublic.one: 1 inserted\n  + id=3\n");
}

#[test]
fn long_differences_are_shortened_and_counted() {
    let tables: Vec<_> = (0..30).map(|at| format!("CREATE TABLE t{at} (id int PRIMARY KEY);")).collect();
    let scene = project(&tables.concat());
    let fill: Vec<_> =
        (0..30).map(|at| format!("INSERT INTO t{at} SELECT generate_series(1, {});", at + 1)).collect();
    scene.write("fill.sql", &fill.concat());
    let shown =
        succeed(&scene, &[], "in_database x -f fill.sql; pgfresh diff x; pgfresh diff x --table t3 --rows 2");
    assert!(
        shown
            .starts_with("x differs from template \"app\": 30 tables\n\npublic.t29: 30 inserted\n  + id=1\n"),
        "{shown}"
    );
    assert!(shown.contains("  + id=10\n  … not shown: 20 inserted\n"), "{shown}");
    assert!(shown.contains("\n… and 10 more tables: 55 inserted\nHINT:  \"pgfresh diff x --table TABLE\" shows a single table.\n"), "{shown}");
    assert!(
        shown.ends_with("public.t3: 4 inserted\n  + id=1\n  + id=2\n  … not shown: 2 inserted\n"),
        "{shown}"
    );
}

/// Number of rows in a table that pgfresh must compare without holding all of them in memory.
const MANY: usize = 300_000;

#[test]
fn many_rows_are_compared_in_little_memory() {
    let scene = project(&format!(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text); \
         INSERT INTO keyed SELECT i, 'value ' || i FROM generate_series(1, {MANY}) i; \
         CREATE TABLE bag AS SELECT v FROM keyed; CREATE TABLE moved AS TABLE keyed; \
         CREATE TABLE same (id int PRIMARY KEY, v text); INSERT INTO same TABLE keyed;"
    ));
    let peak = "sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$PPID/status";
    let text = format!(
        "in_database x -c 'UPDATE keyed SET v = NULL WHERE id % 100000 = 0; UPDATE moved SET v = v; \
         DELETE FROM bag WHERE ctid = (SELECT max(ctid) FROM bag)'; {peak}; pgfresh diff x >found & \
         for name in a b c; do in_database $name -c 'SELECT 1' >/dev/null; done; wait; cat found; {peak}"
    );
    let shown = succeed(&scene, &[], &text);
    let lines: Vec<_> = shown.lines().collect();
    let [before, after] = [lines[0], lines[lines.len() - 1]].map(|line| line.parse::<u64>().unwrap());
    assert!(shown.contains("x differs from template \"app\": 2 tables\n"), "{shown}");
    assert!(shown.contains("public.keyed: 3 updated\n  ~ id=100000  v: 'value 100000' → NULL\n"), "{shown}");
    assert!(shown.contains("public.bag: 1 deleted (no primary key: whole rows)\n  - v='value "), "{shown}");
    // A 32-byte digest and a key for each row on both sides would take more than 40 MB.
    assert!(after - before < 16_384, "{} kB more", after - before);
}

#[test]
fn a_name_that_the_server_cuts_is_found() {
    let long = "long_".repeat(20);
    let output = succeed(
        &project("CREATE TABLE t (v text)"),
        &[],
        &format!("in_database {long} -c 'SELECT 1'\npgfresh diff {long}"),
    );
    assert!(
        output.starts_with("1\n") && output.contains(" does not differ from template \"app\""),
        "{output}"
    );
}
