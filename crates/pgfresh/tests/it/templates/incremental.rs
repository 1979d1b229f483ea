//! Tests incremental builds: pgfresh runs a new file on the earlier template, and the result
//! equals that of a full build.

use std::collections::HashMap;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::common::depth;

/// Configuration with files for psql, in the order of their names.
const SQL: &str = "[template]\nsql = \"migrations/*.sql\"\nsteps = \"append-only\"\n";
/// Configuration with a migration tool that records its runs in the database, and in the file "ran" for the test. If
/// the file "wait" exists, the tool then waits for the file "go".
const TOOL: &str = r#"
[template]
steps = "append-only"
inputs = ["migrations/*.sql"]
setup = '''
psql -Xqc 'CREATE TABLE IF NOT EXISTS applied (name text PRIMARY KEY)'
for file in migrations/*.sql; do
    test "$(psql -XAtqc "SELECT 1 FROM applied WHERE name = '$file'")" && continue
    psql -Xq1 -v ON_ERROR_STOP=1 -f "$file" -c "INSERT INTO applied VALUES ('$file')" || exit
    echo "$file" >>ran
done
while test -e wait && ! test -e go; do sleep 0.01; done
'''
"#;

/// Builds a scene's template. Returns standard error and the full fingerprint.
fn build(scene: &Scene, options: &[&str]) -> (String, String) {
    let outcome = scene.run([&["template", "build"], options].concat());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    (outcome.stderr, show(scene)["fingerprint"].as_str().unwrap().to_owned())
}

fn show(scene: &Scene) -> serde_json::Value {
    let outcome = scene.run(["template", "show", "--json"]);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// Returns the numbers of the files that the tool has run since the previous call.
fn ran(scene: &Scene) -> Vec<String> {
    let path = scene.directory.join("ran");
    let text = fs::read_to_string(&path).unwrap_or_default();
    drop(fs::remove_file(path));
    let number = |line: &str| line.trim_start_matches("migrations/").trim_end_matches(".sql").to_owned();
    text.lines().map(number).collect()
}

/// Builds all steps, and returns the template's schema and rows as SQL.
fn full_dump(scene: &Scene) -> String {
    let cache = scene.place.join("full");
    if !cache.exists() {
        ground::copy_base_cache(scene.user, &cache);
    }
    dump(scene, &["--full", "--cache", cache.to_str().unwrap()], "")
}

/// Removes the cache that [`full_dump`] used.
fn leave(scene: &Scene) {
    fs::remove_dir_all(scene.place.join("full")).unwrap();
}

fn image(scene: &Scene, fingerprint: &str) -> PathBuf {
    scene.cache.join("images").join(fingerprint)
}

fn damage(image: &Path) {
    let control = image.join("data/global/pg_control");
    let bytes = fs::read(&control).unwrap();
    fs::write(&control, &bytes[1..]).unwrap();
}

#[test]
fn only_new_files_run_on_the_parent() {
    for &user in User::all() {
        let scene = project(user, TOOL);
        scene.write("migrations/0001.sql", "CREATE ROLE shop; CREATE TABLE orders (id int PRIMARY KEY);");
        let (said, first) = build(&scene, &[]);
        assert!(said.contains(&format!("building template \"app\" ({})\n", &first[..8])), "{said}");
        assert_eq!(
            (ran(&scene), &show(&scene)["parent"]),
            (vec!["0001".to_owned()], &serde_json::Value::Null)
        );

        scene
            .write("migrations/0002.sql", "INSERT INTO orders VALUES (1); ALTER TABLE orders OWNER TO shop;");
        let outcome = scene.run(["template", "show"]);
        let words = format!("to be built on {}: new migrations/0002.sql\n", &first[..8]);
        assert!(outcome.stdout.contains(&words), "{outcome}");
        assert_eq!(
            (&show(&scene)["built"], &show(&scene)["parent"]),
            (&false.into(), &first.as_str().into())
        );
        let (said, second) = build(&scene, &[]);
        let words = format!("({}) on {}: new migrations/0002.sql\n", &second[..8], &first[..8]);
        assert!(said.contains(&words), "{said}");
        assert_eq!(ran(&scene), ["0002"]);
        assert_eq!((&show(&scene)["built"], &show(&scene)["parent"]), (&true.into(), &first.as_str().into()));
        assert!(scene.run(["template", "show"]).stdout.contains(&format!(": built on {}, ", &first[..8])));
        let outcome = scene.run(["template", "show", &second[..8]]);
        assert!(outcome.stdout.contains(&format!(" on {}: ", &first[..8])), "{outcome}");
        assert!(templates(&scene).iter().any(|line| line.contains(&format!(" on {}: ", &first[..8]))));
        let list: serde_json::Value =
            serde_json::from_str(&scene.run(["template", "list", "--json"]).stdout).unwrap();
        let listed = list.as_array().unwrap().iter().find(|entry| entry["fingerprint"] == *second).unwrap();
        assert_eq!(listed["parent"], *first);

        // `pgfresh run` builds in the same way, and copies the result.
        scene.write("migrations/0003.sql", "INSERT INTO orders VALUES (2);");
        assert_eq!(scene.query(&[], "SELECT sum(id) FROM orders"), "3");
        assert_eq!(ran(&scene), ["0003"]);
        assert_eq!(dump(&scene, &[], ""), full_dump(&scene));
        assert_eq!(ran(&scene), ["0001", "0002", "0003"]);
        leave(&scene);
    }
}

#[test]
fn other_changes_cause_a_full_build() {
    let scene = project(User::Ourselves, &TOOL.replace("steps", "env = \"STAGE\"\nsteps"));
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    build(&scene, &[]);
    let expect = |options: &[&str], stage: Option<&str>, words: &str| {
        let mut command = scene.pgfresh([&["template", "build"], options].concat());
        command.envs(stage.map(|stage| ("STAGE", stage)));
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(outcome.stderr.contains(&format!(") in full: {words}\n")), "no {words:?} in {outcome}");
        assert_eq!(outcome.stderr.lines().count(), 2, "{outcome}");
    };
    scene.write("migrations/0003.sql", "CREATE TABLE items ();");
    expect(&["--set", "jit=off"], None, "setting jit added");
    expect(&[], Some("test"), "environment variable STAGE changed, setting jit removed");
    fs::rename(scene.directory.join("migrations/0001.sql"), scene.directory.join("migrations/0000.sql"))
        .unwrap();
    expect(&[], Some("test"), "migrations/0001.sql removed");
    scene.write("migrations/0002.sql", "CREATE TABLE carts (id int);");
    let outcome = finish({
        let mut command = scene.pgfresh(["template", "show", "--json"]);
        command.env("STAGE", "test");
        command
    });
    assert!(outcome.stdout.contains("\"full_build_reasons\":[\"migrations/0002.sql changed\"]"), "{outcome}");
    expect(&[], Some("test"), "migrations/0002.sql changed");
    fs::remove_file(scene.directory.join("migrations/0003.sql")).unwrap();
    scene.write("migrations/0004.sql", "");
    expect(&[], Some("test"), "migrations/0003.sql removed");
    scene.write("pgfresh.toml", &TOOL.replace("steps", "env = \"STAGE\"\nsteps").replace("-Xq1", "-qX1"));
    expect(&[], Some("test"), "setup command changed");
    // A full build in an empty cache has the same result.
    assert_eq!(dump(&scene, &[], ""), full_dump(&scene));
    leave(&scene);
}

#[test]
fn sql_files_are_added_at_the_end_only() {
    let scene = project(User::Ourselves, &SQL.replace("steps", "inputs = \"*.csv\"\nsteps"));
    scene.write("a.csv", "1\n");
    let (_, first) = build(&scene, &[]);
    // If pgfresh ran the file a second time, it would fail, and so would 0001.
    scene.write("migrations/0003.sql", "\\copy orders FROM 'b.csv'\n");
    scene.write("b.csv", "2\n");
    let (said, _) = build(&scene, &[]);
    assert!(said.contains(": new b.csv, migrations/0003.sql\n"), "{said}");
    // On the first template, which has run only 0001, any later files are valid.
    scene.run(["template", "rm", &first[..8]]);
    scene.write("c.csv", "3\n");
    let (said, _) = build(&scene, &[]);
    assert!(said.contains("in full: c.csv added, which no new step reads\n"), "{said}");
    scene.write("migrations/0002.sql", "INSERT INTO orders VALUES (7);");
    let (said, _) = build(&scene, &[]);
    let words = "in full: migrations/0002.sql comes before migrations/0003.sql, which has run\n";
    assert!(said.contains(words), "{said}");
    assert_eq!(scene.query(&[], "SELECT string_agg(id::text, ',') FROM orders"), "7,2");
    // The setup runs after all files.
    let with_setup = |stage: &str| {
        let text =
            SQL.replace("[template]", "[template]\nsetup = \"psql -Xqc 'INSERT INTO orders VALUES (9)'\"");
        scene.write("pgfresh.toml", &format!("{text}inputs = \"{stage}\"\n"));
    };
    with_setup("*.csv");
    let (said, _) = build(&scene, &[]);
    assert!(said.contains("in full: setup command added\n"), "{said}");
    scene.write("migrations/0004.sql", "INSERT INTO orders VALUES (8);");
    let (said, _) = build(&scene, &[]);
    let words = "in full: migrations/0004.sql comes before the setup command, which has run\n";
    assert!(said.contains(words), "{said}");
    assert_eq!(scene.query(&[], "SELECT string_agg(id::text, ',') FROM orders"), "7,2,8,9");
}

#[test]
fn failed_incremental_builds_leave_the_cache() {
    // This setup runs all files each time.
    let scene = project(User::Ourselves, &CONFIG.replace("setup", "steps = \"append-only\"\nsetup"));
    let (_, first) = build(&scene, &[]);
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let before = templates(&scene);
    let outcome = scene.run(["run", "--", "touch", "reached"]);
    let words = format!("pgfresh: could not build on template {}: template \"app\" (", &first[..8]);
    assert_fails(
        &outcome,
        &[
            &words,
            ") is incomplete: setup ended with exit status: 3",
            "ERROR:  relation \"orders\" already exists\n",
            "\n  New in this build: migrations/0002.sql.\n",
            "HINT:  \"pgfresh template build --keep\" keeps the server to inspect it. With --full, all steps run from the start.\n",
        ],
    );
    assert!(!scene.directory.join("reached").exists());
    assert_eq!(templates(&scene).len(), before.len());
    scene.assert_nothing_left("after a setup that failed on an earlier template");
    let outcome = scene.run(["template", "build", "--keep"]);
    assert_fails(&outcome, &[&words, "To open it: ", "With --full, all steps run from the start.\n"]);
    assert!(scene.run(["sweep", "--kept"]).stdout.contains("kept-"));
    let (said, _) = build(&scene, &["--full"]);
    assert!(!said.contains(" on "), "{said}");
    assert_eq!(show(&scene)["parent"], serde_json::Value::Null);
    // Only the server has failed, but the error names the parent template nevertheless.
    scene.write("pgfresh.toml", SQL);
    build(&scene, &[]);
    scene.write("migrations/0003.sql", "broken;\n");
    assert_fails(
        &scene.run(["template", "build"]),
        &[
            "could not build on template ",
            "psql with \"migrations/0003.sql\" ended with",
            "psql:migrations/0003.sql:1: ERROR",
        ],
    );
}

#[test]
fn full_builds_replace_incremental_ones() {
    let scene = project(User::Ourselves, TOOL);
    build(&scene, &[]);
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let (_, incremental) = build(&scene, &[]);
    assert_eq!(ran(&scene), ["0001", "0002"]);
    let (_, full) = build(&scene, &["--full"]);
    assert_eq!(
        (ran(&scene), &show(&scene)["parent"]),
        (vec!["0001".into(), "0002".into()], &serde_json::Value::Null)
    );
    assert_eq!(incremental, full, "both are of the same inputs");
    let again = build(&scene, &["--full"]).0 + &scene.run(["run", "--quiet", "--full", "--", "true"]).stderr;
    assert_eq!((again.as_str(), ran(&scene).len()), ("", 0));
    // A failed build doesn't replace anything.
    scene.write("migrations/0003.sql", "CREATE TABLE items ();");
    build(&scene, &[]);
    scene.write("pgfresh.toml", &TOOL.replace("while test", "test \"$FAIL\" = yes && exit 5; while test"));
    build(&scene, &[]);
    scene.write("migrations/0004.sql", "CREATE TABLE prices ();");
    build(&scene, &[]);
    let mut command = scene.pgfresh(["template", "build", "--full"]);
    command.env("FAIL", "yes");
    assert_fails(&finish(command), &["setup ended with exit status: 5"]);
    assert_eq!((&show(&scene)["built"], show(&scene)["parent"].is_string()), (&true.into(), true));
}

#[test]
fn unusable_parents_cause_a_full_build() {
    let scene = project(User::Ourselves, TOOL);
    let (_, first) = build(&scene, &[]);
    assert!(scene.run(["template", "rm", &first[..8]]).stdout.contains("removed app"));
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let (said, second) = build(&scene, &[]);
    assert!(said.contains(") in full: the earlier template is not in the cache\n"), "{said}");

    damage(&image(&scene, &second));
    scene.write("migrations/0003.sql", "CREATE TABLE items ();");
    let (said, third) = build(&scene, &[]);
    let words = format!("pgfresh: the cached template {} is damaged; removing it\n", &second[..8]);
    assert!(said.contains(&words) && said.contains(") in full: the earlier"), "{said}");
    assert!(!image(&scene, &second).exists());

    // The forged description contains fewer files than those in the digest that is the entry's name.
    let about = image(&scene, &third).join("about");
    let text = fs::read_to_string(&about).unwrap();
    let forged: Vec<_> = text.lines().filter(|line| !line.contains("input migrations/0003.sql")).collect();
    assert!(forged.len() + 1 == text.lines().count());
    fs::write(&about, forged.join("\n")).unwrap();
    scene.write("migrations/0004.sql", "CREATE TABLE prices ();");
    assert!(build(&scene, &[]).0.contains(") in full: the earlier template"));
    assert_eq!(dump(&scene, &[], ""), full_dump(&scene));
    leave(&scene);
}

#[test]
fn parallel_builds_share_a_parent() {
    let scene = project(User::Ourselves, TOOL);
    let (_, first) = build(&scene, &[]);
    scene.write("wait", "");
    let begin = || {
        let mut command = scene.pgfresh(["template", "build"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let lines = || fs::read_to_string(scene.directory.join("ran")).map_or(0, |text| text.lines().count());
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let mut one = begin();
    wait_until("the first setup", || lines() == 2);
    // The files are those of the first build and another file. The first build isn't complete, so its
    // template can't be the parent.
    scene.write("migrations/0002.sql", "CREATE TABLE carts (id int);");
    let mut other = begin();
    wait_until("the second setup", || lines() == 3);
    let removed = scene.run(["template", "rm", &first[..8]]);
    assert!(removed.stdout.contains("removed app"), "{removed}");
    scene.write("go", "");
    assert!(end_of(&mut other, "the second").success());
    assert_eq!(show(&scene)["parent"], *first);
    // The first build notices that its inputs have changed meanwhile, and what they have changed to.
    assert!(end_of(&mut one, "the first").success());
    assert_eq!(
        (ran(&scene), templates(&scene).len()),
        (vec!["0001".into(), "0002".into(), "0002".into()], 1)
    );
    assert_eq!(dump(&scene, &[], ""), full_dump(&scene));
    leave(&scene);
}

#[test]
fn interrupted_incremental_builds_keep_the_parent() {
    for signal in [Signal::TERM, Signal::KILL] {
        let scene = project(User::Ourselves, TOOL);
        let (_, first) = build(&scene, &[]);
        assert_eq!(ran(&scene), ["0001"]);
        scene.write("wait", "");
        scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
        let mut command = scene.pgfresh(["template", "build"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The file contains its complete line.
        wait_until("the setup", || {
            fs::read(scene.directory.join("ran")).is_ok_and(|ran| ran.ends_with(b"\n"))
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        end_of(&mut child, format!("{signal:?}"));
        let place = scene.place.join(format!("pgfresh-{}", scene.user.uid()));
        wait_until("the guard", || !place.exists());
        assert_eq!((ran(&scene), templates(&scene).len()), (vec!["0002".to_owned()], 1));
        scene.write("go", "");
        build(&scene, &[]);
        assert_eq!((ran(&scene), &show(&scene)["parent"]), (vec!["0002".to_owned()], &first.as_str().into()));
        assert_eq!(dump(&scene, &[], ""), full_dump(&scene));
        leave(&scene);
    }
}

#[test]
fn setups_writing_inputs_are_built_in_full() {
    let config = TOOL
        .replace("inputs = [", "inputs = [\"schema.txt\", ")
        .replace("while test", "ls migrations >schema.txt\nwhile test");
    let scene = project(User::Ourselves, &config);
    scene.write("schema.txt", "0001.sql\n");
    build(&scene, &[]);
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let (said, _) = build(&scene, &[]);
    for words in [
        "building again, because inputs changed during the build: schema.txt changed\n",
        ") in full: schema.txt changed\n",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(ran(&scene), ["0001", "0002", "0001", "0002"]);
    assert_eq!(scene.query(&[], "SELECT count(*) FROM carts"), "0");
}

#[test]
fn templates_extend_incremental_base_templates() {
    let base = TOOL.replace("[template]", "[template.base]");
    let config =
        format!("{base}\n[template.app]\nfrom = \"base\"\nsql = \"seeds/*.sql\"\nsteps = \"append-only\"\n");
    let scene = project(User::Ourselves, &config);
    scene.write("seeds/1.sql", "INSERT INTO orders VALUES (1);");
    let build = || {
        let outcome = scene.run(["template", "build", "app"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stderr
    };
    build();
    scene.write("seeds/2.sql", "INSERT INTO orders VALUES (2);");
    let said = build();
    assert!(
        said.contains("\"app\"") && said.contains(": new seeds/2.sql\n") && !said.contains("\"base\""),
        "{said}"
    );
    assert_eq!(ran(&scene), ["0001"]);
    scene.write("migrations/0002.sql", "ALTER TABLE orders ADD name text DEFAULT 'x';");
    let said = build();
    for words in [": new migrations/0002.sql\n", ") in full: template it goes on from changed\n"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(ran(&scene), ["0002"]);
    let answer =
        scene.query(&["--template", "app"], "SELECT current_database(), sum(id), max(name) FROM orders");
    assert_eq!(answer, "app|3|x");
}

#[test]
fn pulled_templates_can_be_parents() {
    let scene = project(User::Ourselves, TOOL);
    let (_, first) = build(&scene, &[]);
    let public = {
        let outcome = scene.run(["template", "keygen", "key"]);
        outcome.stdout.split('"').nth(1).expect(&outcome.stdout).to_owned()
    };
    assert_eq!(scene.run(["template", "push", "--key", "key", "carried"]).code, Some(0));
    let cache = scene.place.join("full");
    ground::copy_base_cache(scene.user, &cache);
    let elsewhere = |words: &[&str]| {
        let mut command = scene.pgfresh(words);
        command.env("PGFRESH_CACHE", &cache).env("PGFRESH_CACHE_KEYS", &public);
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stdout + &outcome.stderr
    };
    assert!(elsewhere(&["template", "pull", "carried"]).contains("taken over"));
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let said = elsewhere(&["template", "build"]);
    assert!(said.contains(&format!(" on {}: new migrations/0002.sql\n", &first[..8])), "{said}");
    assert_eq!(ran(&scene), ["0001", "0002"]);
    leave(&scene);
}

#[test]
fn setups_without_inputs_ignore_steps() {
    let scene = project(User::Ourselves, &TOOL.replace("inputs = [\"migrations/*.sql\"]\n", ""));
    for _ in 0..2 {
        assert_eq!(scene.query(&[], "SELECT count(*) FROM orders"), "0");
        assert_eq!(ran(&scene), ["0001"]);
    }
    assert!(scene.run(["template", "show"]).stdout.contains("runs each time"));
}

#[test]
fn steps_accept_flags_and_variables() {
    let scene = project(User::Ourselves, "");
    let flags = ["--sql", "migrations", "--steps", "append-only"];
    scene.run([&["template", "build"][..], &flags].concat());
    scene.write("migrations/0002.sql", "INSERT INTO orders VALUES (1);");
    let outcome = scene.run([&["template", "build"][..], &flags].concat());
    assert!(outcome.stderr.contains(": new migrations/0002.sql\n"), "{outcome}");
    scene.write("migrations/0003.sql", "INSERT INTO orders VALUES (2);");
    let mut command = scene.pgfresh(["template", "build"]);
    command.env("PGFRESH_SQL", "migrations").env("PGFRESH_STEPS", "append-only");
    let outcome = finish(command);
    assert!(outcome.stderr.contains(": new migrations/0003.sql\n"), "{outcome}");
    // The option has the default value.
    scene.write("migrations/0004.sql", "INSERT INTO orders VALUES (3);");
    let outcome = scene.run(["template", "build", "--sql", "migrations", "--steps", "any"]);
    assert!(
        outcome.stderr.contains("rebuilding template") && outcome.stderr.contains("0004.sql added, list"),
        "{outcome}"
    );
    assert_fails(
        &scene.run(["run", "--steps", "append-only", "--", "true"]),
        &["cannot use --inputs, --setup-env, --steps or --from alone"],
    );
    assert_fails(
        &scene.run(["template", "build", "--sql", "x", "--steps", "append"]),
        &["--steps", "expected \"append-only\" or \"any\""],
    );
    for (line, words) in [
        (
            "steps = 'append_only'",
            "pgfresh.toml:3: bad value for \"steps\": expected \"append-only\" or \"any\"",
        ),
        ("steps = true", "pgfresh.toml:3: bad value for \"steps\": expected a string"),
        ("step = 'append-only'", "HINT:  Did you mean \"steps\"?"),
    ] {
        scene.write("pgfresh.toml", &format!("[template]\nsql = 'x'\n{line}\n"));
        assert_fails(&scene.run(["run", "--", "true"]), &[words]);
    }
}

/// Edit to the files. Indexes select among the existing files.
#[derive(Debug, Clone)]
enum Edit {
    Append,
    /// Adds a file before an existing file.
    Insert(prop::sample::Index),
    Change(prop::sample::Index),
    Remove(prop::sample::Index),
    /// Renames a file, so that it comes last.
    Rename(prop::sample::Index),
    /// Restores all files to their state this many edits ago.
    Undo(prop::sample::Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let index = any::<prop::sample::Index>;
    let edit = prop_oneof![
        6 => Just(Edit::Append),
        1 => index().prop_map(Edit::Insert),
        1 => index().prop_map(Edit::Change),
        1 => index().prop_map(Edit::Remove),
        1 => index().prop_map(Edit::Rename),
        1 => index().prop_map(Edit::Undo),
    ];
    prop::collection::vec(edit, 3..7)
}

/// Files by name, with the number that determines their content.
type Files = Vec<(String, usize)>;

/// Returns a migration whose position affects the schema and rows, and that succeeds in any order.
fn migration(number: usize) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS log (id serial PRIMARY KEY, said text);\n\
         ALTER TABLE log ADD COLUMN c{number} int DEFAULT {number};\n\
         UPDATE log SET said = said || ' {number}';\n\
         INSERT INTO log (said) SELECT 'of {number}' FROM generate_series(1, {number} % 3 + 1);\n\
         CREATE INDEX ON log (c{number});\n"
    )
}

/// Returns `files` after the edit. A new file has the content `number`.
fn edited(edit: &Edit, history: &[Files], number: usize) -> Files {
    let mut files = history.last().unwrap().clone();
    let last = format!("{number:04}.sql");
    match edit {
        Edit::Insert(at) if !files.is_empty() => {
            let name = at.get(&files).0.replace(".sql", "");
            // "0003-0007" sorts before "0003.sql".
            files.push((format!("{name}-{number:04}.sql"), number));
        }
        Edit::Append | Edit::Insert(_) => files.push((last, number)),
        _ if files.is_empty() => files.push((last, number)),
        Edit::Change(at) => files[at.index(history.last().unwrap().len())].1 = number,
        Edit::Remove(at) => drop(files.remove(at.index(history.last().unwrap().len()))),
        Edit::Rename(at) => files[at.index(history.last().unwrap().len())].0 = last,
        Edit::Undo(at) => files.clone_from(at.get(history)),
    }
    files.sort();
    files
}

/// Whether `new` consists of `old` and further files after it.
fn is_prefix(old: &Files, new: &Files) -> bool {
    new.len() > old.len() && new.starts_with(old)
}

/// Applies `edits` to a project. Compares each template with a full build, and the kind of build
/// with the expected kind.
fn play(config: &str, edits: &[Edit]) {
    let scene = project(User::Ourselves, config);
    let always = "ALTER DATABASE app SET work_mem = '5MB';";
    scene.write("migrations/0001.sql", always);
    let mut history = vec![Files::new()];
    let mut dumps: HashMap<Files, String> = HashMap::new();
    build(&scene, &[]);
    for (number, edit) in (2..).zip(edits) {
        // The tool only runs files that it hasn't run before, so it would run an inserted or restored file last.
        let is_between = matches!(edit, Edit::Insert(_) | Edit::Undo(_));
        let edit = if config == TOOL && is_between { &Edit::Append } else { edit };
        let files = edited(edit, &history, number);
        for entry in fs::read_dir(scene.directory.join("migrations")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        scene.write("migrations/0001.sql", always);
        for (name, number) in &files {
            scene.write(&format!("migrations/{name}"), &migration(*number));
        }
        let (said, _) = build(&scene, &[]);
        let context = format!("{edit:?}: {:?} then {files:?}\n{said}", history.last());
        let is_known = history.contains(&files);
        let on_another = history.iter().any(|old| is_prefix(old, &files));
        assert_eq!(said.is_empty(), is_known, "{context}");
        assert_eq!(said.contains(") on "), on_another && !is_known, "{context}");
        // A full build of the same files gives the same dump.
        let full = dumps.entry(files.clone()).or_insert_with(|| full_dump(&scene));
        assert_eq!(dump(&scene, &[], ""), *full, "{context}");
        history.push(files);
    }
    leave(&scene);
}

#[test]
fn generated_edits_equal_a_full_build() {
    let config = Config {
        cases: depth::rounds(2),
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let tool = prop::bool::ANY;
    TestRunner::new(config)
        .run(&(edits(), tool), |(edits, tool)| {
            play(if tool { TOOL } else { SQL }, &edits);
            Ok(())
        })
        .unwrap();
}
