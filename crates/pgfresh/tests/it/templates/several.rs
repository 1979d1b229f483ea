//! Tests several templates on one server: each equals its copy on a server with one template, and clients
//! lease each by its name.

use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::*;
use crate::common::depth;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::serve::Serve;

/// Two templates based on a third, and a separate template, with objects in all shared catalogs.
const CONFIG: &str = r#"
[template.schema]
sql = "schema.sql"
setup = "echo schema >>runs"
inputs = "schema.sql"

[template.demo]
from = "schema"
sql = "demo.sql"
setup = "echo demo >>runs"
inputs = "demo.sql"

[template.other]
sql = "other.sql"
setup = "echo other >>runs"
inputs = "other.sql"
"#;

fn several(user: User) -> Scene {
    let scene = project(user, CONFIG);
    scene.write(
        "schema.sql",
        "CREATE ROLE shop; CREATE TABLE orders (id int PRIMARY KEY); ALTER DATABASE schema OWNER TO shop;
         ALTER DATABASE schema SET work_mem = '5MB'; ALTER ROLE shop IN DATABASE schema SET jit = off;
         COMMENT ON DATABASE schema IS 'of the shop'; REVOKE TEMP ON DATABASE schema FROM public;",
    );
    scene.write("demo.sql", "INSERT INTO orders VALUES (1), (2); ALTER DATABASE demo CONNECTION LIMIT 90;");
    scene.write(
        "other.sql",
        "CREATE TABLE notes (); ALTER DATABASE other SET search_path = elsewhere, public;",
    );
    scene
}

/// Returns the names of the setups that ran since the previous call.
fn ran(scene: &Scene) -> String {
    let path = scene.directory.join("runs");
    let text = fs::read_to_string(&path).unwrap_or_default();
    drop(fs::remove_file(path));
    text.lines().collect::<Vec<_>>().join(" ")
}

/// A leased name determines its server, so the user doesn't select a template again. For a name that isn't
/// leased, the user has to.
#[test]
fn leased_names_need_no_choice_of_template() {
    let scene = several(User::Ourselves);
    let pgfresh = |words: &[&str]| scene.run(words);
    let url = pgfresh(&["url", "mine", "--template", "demo"]);
    assert_eq!(url.code, Some(0), "{url}");
    let count = pgfresh(&["psql", "mine", "--", "-XAtc", "SELECT count(*) FROM orders"]);
    assert_eq!((count.code, count.stdout.as_str()), (Some(0), "2\n"), "{count}");
    let again = pgfresh(&["url", "mine"]);
    assert_eq!((again.code, again.stdout), (Some(0), url.stdout), "{}", again.stderr);
    for words in [&["psql", "other_name", "--", "-c", "SELECT 1"][..], &["psql"], &["url"]] {
        let refused = pgfresh(words);
        assert!(refused.stderr.contains("there are several, and all have names"), "{refused}");
    }
    assert_eq!(pgfresh(&["stop"]).code, Some(0));
}

#[test]
fn each_of_several_is_built_once() {
    for user in depth::some_of(User::all().iter().copied()) {
        let scene = several(user);
        let alone = ["schema", "demo", "other"].map(|name| dump(&scene, &["--template", name], name));
        assert_eq!(ran(&scene), "schema demo other");
        // The first template that is named is the default, whichever template pgfresh builds first.
        let all = "demo, other,schema";
        assert_eq!(
            scene.query(&["--template", all], "SELECT current_database(), count(*) FROM orders"),
            "demo|2"
        );
        assert_eq!(
            ran(&scene),
            "demo other",
            "the image of the first to be made is the one that it has alone"
        );
        for (name, alone) in ["schema", "demo", "other"].iter().zip(alone) {
            assert!(alone.contains(&format!("DATABASE {name}")), "{alone}");
            assert_eq!(dump(&scene, &["--template", all], name), alone, "{name}");
        }
        assert_eq!(ran(&scene), "");
        assert_eq!(scene.query(&["--template", "schema,demo,other"], "SELECT current_database()"), "schema");
        assert_eq!(ran(&scene), "", "another default is no other image");
        scene.write("other.sql", "CREATE TABLE notes (id int);");
        let outcome = scene.run(["template", "build", "schema,demo,other"]);
        assert!(outcome.stderr.contains("rebuilding template \"schema,demo,other\""), "{outcome}");
        assert!(outcome.stderr.contains(": other.sql changed"), "{outcome}");
        assert_eq!(ran(&scene), "other", "those before it are in the cache");
        let shown = scene.run(["template", "show", "schema,demo,other", "--json"]).stdout;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(
            (&shown["name"], &shown["built"], &shown["made_from"]),
            (
                &json!("schema,demo,other"),
                &json!(true),
                &json!("beside schema,demo; other.sql; echo other >>runs")
            )
        );
        assert!(
            templates(&scene).iter().any(|line| line.starts_with("schema,demo,other ")),
            "{:?}",
            templates(&scene)
        );
    }
}

#[test]
fn leases_get_the_template_they_name() {
    let scene = several(User::Ourselves);
    let serve = Serve::at(scene, ["--template", "demo,other,schema"]);
    let gateway = Gateway { serve, major: 15 };
    assert_eq!(gateway.serve.ready["database"], "demo");
    let ask = |name: &str, options, sql| gateway.connect(name, options).unwrap().value(sql).unwrap();
    // In one template, the table has two rows. In another, it is empty. The third doesn't have the table.
    let what = "SELECT count(*) FROM pg_class WHERE relname = 'notes'";
    let rows = "SELECT count(*) FROM orders";
    for isolation in ["clone", "rollback", "server"] {
        for (template, question, answer) in
            [("demo", rows, "2"), ("schema", rows, "0"), ("other", what, "1"), ("template1", what, "0")]
        {
            let name = format!("{isolation}_{template}");
            let request = json!({ "template": template, "isolation": isolation, "name": name }).to_string();
            let (code, leased) = gateway.http("POST", "/v1/databases", &request);
            assert_eq!((code, &leased["template"]), (201, &json!(template)), "{leased}");
            assert_eq!(ask(&name, "", question), answer, "{name}");
        }
    }
    // A leased server has only its own database, and the comparison is with its template.
    for (name, template) in [("demo", "other"), ("schema", "demo"), ("other", "other")] {
        let request = json!({ "template": template, "isolation": "server", "name": name }).to_string();
        assert_eq!(gateway.http("POST", "/v1/databases", &request).0, 201, "{request}");
        let (code, diff) = gateway.http("GET", &format!("/v1/databases/{name}/diff"), "");
        assert_eq!((code, &diff["template"], &diff["tables"]), (200, &json!(template), &json!([])), "{diff}");
        assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{name}"), "").0, 204);
    }
    // The startup packet names the template. If it doesn't, the database's name does. Otherwise, the default applies.
    assert_eq!(ask("a", "-c pgfresh.template=other", what), "1");
    assert_eq!(ask("other", "", what), "1");
    assert_eq!(ask("schema", "", rows), "0");
    assert_eq!(ask("b", "", rows), "2");
    let (code, leased) = gateway.http("POST", "/v1/databases", r#"{"name": "demo"}"#);
    assert_eq!((code, &leased["template"]), (201, &json!("demo")));
    let (code, problem) = gateway.http("POST", "/v1/databases", r#"{"template": "unknown"}"#);
    assert_eq!((code, &problem["error"]["code"]), (404, &json!("3D000")));
    assert_eq!(problem["error"]["detail"], "This server has demo, schema, other, template1.");
    // No image has a snapshot from this server.
    assert_eq!(gateway.http("POST", "/v1/databases/b/snapshot", r#"{"template": "taken"}"#).0, 201);
    let (_, problem) =
        gateway.http("POST", "/v1/databases", r#"{"template": "taken", "isolation": "server"}"#);
    assert_eq!(problem["error"]["code"], "0A000", "{problem}");
    assert_eq!(ask("taken", "", rows), "2");
}

#[test]
fn a_failed_template_leaves_the_others_cached() {
    let scene = several(User::Ourselves);
    scene.write("demo.sql", "CREATE ROLE shop;");
    let outcome = scene.run(["template", "build", "schema,demo"]);
    assert_fails(&outcome, &["template \"demo\"", "role \"shop\" already exists"]);
    assert_eq!((ran(&scene), templates(&scene).len()), ("schema".to_owned(), 1));
    assert_fails(
        &scene.run(["run", "--template", "schema,demi", "--", "true"]),
        &["there is no template \"demi\""],
    );
    assert_fails(
        &scene.run(["run", "--template", "schema,none", "--", "true"]),
        &["there is no template \"none\""],
    );
    for empty in ["schema,", ",schema", "schema,,demo", ","] {
        let outcome = scene.run(["run", "--template", empty, "--", "true"]);
        assert_fails(
            &outcome,
            &[&format!("cannot use \"{empty}\" as a list of templates: a name between commas")],
        );
    }
    for options in [["--template", "schema,demo"], ["--from", "schema,demo"]] {
        let outcome = scene.run([&["run", "--sql", "other.sql"], &options[..], &["--", "true"]].concat());
        assert_fails(&outcome, &["cannot use \"schema,demo\"", "a single template"]);
    }
}

/// Setups that change the server in ways that would affect later templates and tests, with the errors.
const SPOILERS: [(&str, &str); 8] = [
    ("psql -qd postgres -c 'DROP DATABASE schema'", "left no database \"schema\""),
    ("psql -qd postgres -c 'DROP DATABASE spoiler'", "left no database \"spoiler\""),
    ("psql -qd postgres -c 'ALTER DATABASE schema RENAME TO other'", "left no database \"schema\""),
    (
        "psql -qc 'BEGIN; CREATE TABLE t (); PREPARE TRANSACTION $$x$$'",
        "left a prepared transaction in database \"spoiler\"",
    ),
    (
        "psql -qc 'ALTER ROLE postgres SET default_transaction_read_only = on'",
        "left all transactions read-only",
    ),
    (
        "psql -qc 'ALTER ROLE postgres NOSUPERUSER'",
        "removed the superuser attribute from role \"postgres\"\nHINT:  pgfresh itself uses the role ",
    ),
    ("psql -qc 'ALTER ROLE postgres NOLOGIN'", "left a server that pgfresh cannot use"),
    ("psql -qd schema -c 'DROP DATABASE postgres'", "left a server that pgfresh cannot use"),
];

#[test]
fn templates_that_damage_the_server_are_refused() {
    let scene = several(User::Ourselves);
    let own = fs::read_to_string(scene.directory.join("pgfresh.toml")).unwrap();
    for (setup, complaint) in SPOILERS {
        let inputs = "inputs = \"schema.sql\"";
        scene.write("pgfresh.toml", &format!("{own}\n[template.spoiler]\nsetup = \"{setup}\"\n{inputs}\n"));
        let options = ["run", "--set", "max_prepared_transactions=5", "--template", "schema,spoiler"];
        let outcome = scene.run([&options[..], &["--", "true"]].concat());
        assert_fails(&outcome, &[&format!("the steps of template \"spoiler\" {complaint}")]);
        assert!(templates(&scene).iter().all(|line| !line.contains("spoiler")), "{setup}");
    }
    assert_eq!(ran(&scene), "schema", "it stays");
    // The check also applies without a cache.
    let each = format!("{own}\n[template.spoiler]\nsetup = \"{}\"\n", SPOILERS[0].0);
    scene.write("pgfresh.toml", &each);
    let outcome = scene.run(["run", "--template", "schema,spoiler", "--", "true"]);
    assert_fails(&outcome, &["the steps of template \"spoiler\" left no database \"schema\""]);
}

#[test]
fn interrupted_builds_cost_one_template() {
    let scene = several(User::Ourselves);
    let names = ["schema", "demo", "other"];
    let mut random = Random::new();
    let begun = Instant::now();
    let dumps = names.map(|name| dump(&scene, &["--template", "schema,demo,other"], name));
    let longest = begun.elapsed();
    let place = scene.place.join(format!("pgfresh-{}", scene.user.uid()));
    for round in 0..depth::rounds(1) {
        let signal = *random.choose(&[Signal::INT, Signal::TERM, Signal::KILL]);
        let context = format!("round {round}, {signal:?}");
        let own = fs::read_to_string(scene.directory.join("schema.sql")).unwrap();
        scene.write("schema.sql", &format!("{own}-- {context}\n"));
        ran(&scene);
        let build = || {
            let mut command = scene.pgfresh(["template", "build", "schema,demo,other"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        // Sometimes another build waits for the build that the test ends.
        let mut ended = build();
        let other = random.chance(50).then(build);
        thread::sleep(random.moment(longest));
        let hit = ended.try_wait().unwrap().is_none();
        if hit {
            kill_process(Pid::from_child(&ended), signal).unwrap();
        }
        end_of(&mut ended, &context);
        if let Some(mut other) = other {
            assert!(end_of(&mut other, &context).success(), "{context}");
        }
        wait_until("the guard", || !place.exists());
        for (name, whole) in names.iter().zip(&dumps) {
            assert_eq!(dump(&scene, &["--template", "schema,demo,other"], name), *whole, "{context}: {name}");
        }
        let ran = ran(&scene);
        assert!(ran.split(' ').count() <= 3 + usize::from(hit), "{context}: {ran}");
    }
    scene.assert_nothing_left("the end");
}

#[test]
fn several_templates_mix_steps_and_inputs() {
    let config = "[template.app]\nsql = \"migrations/*.sql\"\nsteps = \"append-only\"\n\
        [template.each]\nsetup = \"echo each >>runs; psql -qc 'CREATE TABLE each_time ()'\"\n";
    let scene = project(User::Ourselves, config);
    let options = ["--template", "each,app"];
    let question = "SELECT current_database(), count(*) FROM pg_class WHERE relname = 'each_time'";
    for _ in 0..2 {
        assert_eq!(scene.query(&options, question), "each|1");
        assert_eq!(ran(&scene), "each");
    }
    scene.write("each.txt", "");
    scene.write("pgfresh.toml", &(config.to_owned() + "inputs = \"each.txt\"\n"));
    assert_eq!(scene.query(&options, question), "each|1");
    scene.write("migrations/0002.sql", "INSERT INTO orders VALUES (7);");
    let outcome = scene.run(["template", "build", "each,app"]);
    assert!(outcome.stderr.contains(": new migrations/0002.sql"), "{outcome}");
    assert_eq!(scene.query(&options, "SELECT 1"), "1");
}
