//! Tests mistakes in a template's description: each error names the mistake and its position.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{CONFIG, assert_fails, project};
use crate::common::{User, finish};

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let scene = project(User::Ourselves, "");
    for (text, words) in [
        (
            "[template]\nsteup = 'x'\n",
            &["pgfresh.toml:2: unknown key in [template]: \"steup\"", "Did you mean \"setup\"?"][..],
        ),
        (
            "[template.a]\nsetup = 'x'\ninput = 'y'\n",
            &["pgfresh.toml:3: unknown key in [template.a]", "\"inputs\"?"],
        ),
        ("[template]\nsql = 5\n", &["pgfresh.toml:2: bad value for \"sql\": expected a string or an array"]),
        (
            "[template]\ninputs = ['a']\n",
            &["pgfresh.toml:2: [template] needs setup, sql, dump or from", "HINT"],
        ),
        (
            "[template.'a b']\nsetup = 'x'\n",
            &[
                "pgfresh.toml:1: \"a b\" cannot be the name of a template: expected at most 46 letters, digits",
            ],
        ),
        ("[template.setup]\nsql = 'x'\n", &["pgfresh.toml:1: bad value for \"setup\""]),
        (
            "[template.a]\nfrom = 'b'\n[template.b]\nfrom = 'a'\n",
            &["pgfresh.toml:4: templates extend each other in a circle: a, b, a\n"],
        ),
        ("[template.a]\nfrom = 'a'\n", &["pgfresh.toml:2: template \"a\" would extend itself"]),
        ("\n[template]\n", &["pgfresh.toml:2: [template] needs setup, sql, dump or from", "HINT"]),
        ("[template]\nsql = ''\n", &["pgfresh.toml:2: bad value for \"sql\": it is empty"]),
        ("[template]\nsql = [\n'a',\n' ']\n", &["pgfresh.toml:2: bad value for \"sql\": it is empty"]),
        ("[template.a]\nsetup = ''\n", &["pgfresh.toml:2: bad value for \"setup\": it is empty"]),
        (
            "[template.shop]\nfrom = 'bsae'\n[template.base]\nsql = 'x'\n",
            &["pgfresh.toml:2: unknown template", "\"base\"?"],
        ),
        ("[cache]\nsize = 'big'\n", &["pgfresh.toml:2: bad value for \"size\": expected a size"]),
        ("[templates]\n", &["pgfresh.toml:1: unknown table", "\"template\"?"]),
    ] {
        scene.write("pgfresh.toml", text);
        assert_fails(&scene.run(["run", "--", "true"]), words);
    }
    scene.write("pgfresh.toml", "[postgres]\nplace = './nope'\n");
    let mut command = scene.pgfresh(["run", "--", "true"]);
    command.env_remove("PGFRESH_PLACE");
    let place = scene.directory.join("nope");
    let expected = format!("could not use \"{}\": No such file", place.display());
    assert_fails(
        &finish(command),
        &[&expected, "HINT:  Create the directory, or use a different one: --place PATH"],
    );
}

#[test]
fn common_mistakes_get_a_remedy() {
    let scene = project(User::Ourselves, "");
    for (text, words) in [
        (
            "[template]\nsetup = alembic upgrade head  # all\n",
            &[
                "pgfresh.toml:2: string values must be quoted",
                "\nHINT:  Write it in quotes: setup = \"alembic upgrade head\"\n",
            ][..],
        ),
        (
            "[template]\nsetup = echo \"a\" \\b\n",
            &[
                "pgfresh.toml:2: unexpected key or value",
                "\nHINT:  Write it in quotes: setup = 'echo \"a\" \\b'\n",
            ],
        ),
        (
            "[template]\nsetup = 'x'\ninputs = 'y'\nsetup = 'z'\n",
            &["pgfresh.toml:4: duplicate key: \"setup\"\n"],
        ),
        ("[cache]\n[cache]\n", &["pgfresh.toml:2: duplicate key: \"cache\"\n"]),
        (
            "[postgres]\nversion = \"16.1\"\n",
            &["pgfresh.toml:2: bad value for \"version\"", "\nHINT:  Give the major alone: \"16\".\n"],
        ),
    ] {
        scene.write("pgfresh.toml", text);
        assert_fails(&scene.run(["run", "--", "true"]), words);
    }
}

#[test]
fn unwritable_given_paths_get_no_alternative() {
    // root can write everywhere, so it is left out.
    for &user in User::all().iter().filter(|user| user.uid() != 0) {
        let scene = project(user, "");
        let closed = scene.directory.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        let outcome = scene.run(["template", "push", "closed/x", "--sql", "migrations/0001.sql"]);
        assert_fails(&outcome, &["could not create \"closed/x\": Permission denied\n"]);
        assert!(!outcome.stderr.contains("HINT"), "{outcome}");
    }
}

#[test]
fn paths_of_wrong_kind_are_named() {
    let scene = project(User::Ourselves, "");
    scene.write("data.dump", "PGDMP and more");
    fs::create_dir_all(scene.directory.join("empty/folder")).unwrap();
    for (words, expected) in [
        (
            "run --sql data.dump -- true",
            &["pgfresh: \"data.dump\" is a dump, not SQL\nHINT:  Set dump = \"data.dump\" (--dump).\n"][..],
        ),
        ("run --sql . -- true", &["cannot read pattern \".\": it is the whole folder", "as in \"db/*.sql\""]),
        ("run --sql ./ -- true", &["cannot read pattern \"./\": it is the whole folder"]),
        ("run --dump . -- true", &["cannot restore \".\": there is no toc.dat in this directory"]),
        ("run --place ./data.dump -- true", &["/data.dump\": it is a file, not a directory"]),
        (
            "template pull empty",
            &["there is no template in \"empty\"", "\"pgfresh template push FOLDER\" writes"],
        ),
        ("template pull nowhere", &["could not read \"nowhere\": No such file"]),
        (
            "template push data.dump --sql migrations/0001.sql",
            &["could not create \"data.dump\": it is a file, not a directory"],
        ),
    ] {
        assert_fails(&scene.run(words.split(' ')), expected);
    }
}

#[test]
fn invalid_settings_fail_before_the_build() {
    let scene = project(User::Ourselves, CONFIG);
    let run = |setting: &str| scene.run(["run", "--set", setting, "--", "true"]);
    for (setting, error) in [
        ("port=1", "pgfresh: cannot set \"port\": pgfresh uses it to keep the server private\n"),
        ("work_memm=1MB", "has no setting \"work_memm\"\nHINT:  Did you mean \"work_mem\"?"),
    ] {
        let outcome = run(setting);
        assert_fails(&outcome, &[error]);
        assert!(!outcome.stderr.contains("building"), "{outcome}");
    }
    // The first setting isn't in the server's list, and the second belongs to an extension.
    for setting in ["zero_damaged_pages=on", "app.motto=on"] {
        assert!(run(setting).stderr.contains("built template"), "{setting}");
    }
}

#[test]
fn missing_preloaded_library_gets_hint() {
    let scene = project(User::Ourselves, "");
    let outcome = scene.run(["run", "--set", "shared_preload_libraries=pg_cron", "--", "true"]);
    assert_fails(
        &outcome,
        &["could not access file \"pg_cron\"", "HINT:  Install the extension that has this library"],
    );
}
