//! Tests that `init` writes a file that pgfresh can read and that builds the project's own schema, and that it
//! doesn't overwrite anything.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

use crate::common::{Outcome, Scene, User, finish, ground, mounts};

/// Folder with the examples.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Examples, each with the test command that init prints for it.
const TESTS: [(&str, &str); 19] = [
    ("dotnet-harbour", "dotnet test"),
    ("elixir-kiosk", "mix test"),
    ("go-library", "go test ./..."),
    ("java-hotel", "mvn -B test"),
    ("java-liquibase", "mvn -B test"),
    ("java-spring", "mvn -B test"),
    ("node-faults", "npm test"),
    ("node-knex", "npm test"),
    ("node-playwright", "npm test"),
    ("node-prisma", "npm test"),
    ("node-vitest-jest", "npm test"),
    ("php-parking", "phpunit tests"),
    ("python-django", "pytest"),
    ("python-fastapi", "pytest"),
    ("python-faults", "pytest"),
    ("python-shop", "pytest"),
    ("ruby-cinema", "rake test"),
    ("rust-tickets", "cargo test --locked"),
    // This example has migrations but no tests.
    ("sql-parcels", "your-test-command"),
];

/// Copies a project's files, except for its configuration and for what its tools install.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let installed =
            ["pgfresh.toml", "node_modules", "target", "obj", "bin", "__pycache__", "_build", "deps"];
        if installed.iter().any(|other| *other == name) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(name));
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

/// Runs `pgfresh init` with `options` in `folder`.
fn init(scene: &Scene, folder: &Path, options: &[&str]) -> Outcome {
    let mut command = scene.pgfresh([&["init"], options].concat());
    command.current_dir(folder);
    finish(command)
}

#[track_caller]
fn template(text: &str) -> Table {
    let table: Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    table["template"].as_table().unwrap().clone()
}

#[test]
fn every_example_gets_an_equivalent_file() {
    let mut examples: Vec<_> =
        fs::read_dir(EXAMPLES).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    examples.sort();
    assert_eq!(examples, TESTS.map(|(example, _)| example), "an example has no expected command");
    let scene = Scene::new(User::Ourselves);
    for (example, tests) in TESTS {
        let folder = scene.directory.join(example);
        copy(&Path::new(EXAMPLES).join(example), &folder);
        let outcome = init(&scene, &folder, &[]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{example}: {outcome}");
        assert!(outcome.stdout.contains(&format!("  pgfresh run -- {tests} ")), "{example}: {outcome}");
        let own =
            template(&fs::read_to_string(Path::new(EXAMPLES).join(example).join("pgfresh.toml")).unwrap());
        let written = template(&fs::read_to_string(folder.join("pgfresh.toml")).unwrap());
        for key in ["setup", "sql", "inputs"] {
            // init lists the package that env.py imports, but not the whole folder src.
            let expected = match (example, key) {
                ("python-shop", "inputs") => {
                    Some(vec!["migrations/**", "alembic.ini", "src/shop/**/*.py"].into())
                }
                _ => own.get(key).cloned(),
            };
            assert_eq!(written.get(key), expected.as_ref(), "{example}: {key}");
        }
        // pgfresh reads the file, and each pattern in it matches files.
        let mut command = scene.pgfresh(["template", "show", "--postgres", "15"]);
        command.current_dir(&folder);
        let outcome = finish(command);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{example}: {outcome}");
    }
}

#[test]
fn no_file_is_overwritten_or_replaced_from_below() {
    type Make = fn(&Path);
    let makes: [Make; 3] = [
        |path| fs::write(path, "mine").unwrap(),
        |path| symlink("nowhere", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
    ];
    for make in makes {
        let scene = Scene::new(User::Ourselves);
        let below = scene.directory.join("a/b");
        fs::create_dir_all(&below).unwrap();
        let path = scene.directory.join("pgfresh.toml");
        make(&path);
        let outcome = init(&scene, &scene.directory, &[]);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        assert!(outcome.stderr.starts_with("pgfresh: pgfresh.toml already exists"), "{outcome}");
        let outcome = init(&scene, &below, &[]);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        assert!(outcome.stderr.contains("/pgfresh.toml\" already applies to this folder\n"), "{outcome}");
        assert!(fs::read_dir(&below).unwrap().next().is_none());
        assert!(!scene.directory.join("nowhere").exists());
        assert!(fs::read(&path).map_or(true, |text| text == b"mine"));
        // A dry run doesn't write anything, so it can always print.
        for folder in [&scene.directory, &below] {
            let outcome = init(&scene, folder, &["--dry-run"]);
            assert_eq!(outcome.code, Some(0), "{outcome}");
        }
    }
}

#[test]
fn dry_run_prints_the_file_that_init_writes() {
    let scene = Scene::new(User::Ourselves);
    scene.write("go.mod", "");
    scene.write("migrations/1_a.up.sql", "");
    let printed = init(&scene, &scene.directory, &["--dry-run"]);
    let path = scene.directory.join("pgfresh.toml");
    assert!(!path.exists());
    assert!(printed.stderr.starts_with("Next:\n  pgfresh template build "), "{printed}");
    let quiet = init(&scene, &scene.directory, &["--dry-run", "--quiet"]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), (printed.stdout.as_str(), ""));
    let wrote = init(&scene, &scene.directory, &[]);
    assert!(
        wrote.stdout.starts_with("Wrote pgfresh.toml: golang-migrate (migrations/1_a.up.sql).\nNext:\n"),
        "{wrote}"
    );
    assert!(wrote.stdout.contains("  pgfresh run -- go test ./... "), "{wrote}");
    assert_eq!(fs::read_to_string(&path).unwrap(), printed.stdout);
}

#[test]
fn read_only_folder_is_an_error_with_advice() {
    let user = *User::all().last().unwrap();
    let scene = Scene::new(user);
    let folder = scene.directory.join("fixed");
    fs::create_dir(&folder).unwrap();
    user.give(&folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let outcome = init(&scene, &folder, &[]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.contains("pgfresh.toml\": Permission denied\nHINT:  "), "{outcome}");
    assert_eq!(init(&scene, &folder, &["--dry-run"]).code, Some(0));
}

#[test]
fn project_below_is_named_instead_of_empty_file() {
    let scene = Scene::new(User::Ourselves);
    scene.write("web/package.json", "{}");
    scene.write("web/pages/package.json", "{}");
    scene.write("apps/server/manage.py", "django 'DJANGO_SETTINGS_MODULE', 'shop.settings'");
    scene.write("apps/server/shop/settings.py", "");
    let outcome = init(&scene, &scene.directory, &[]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(
        outcome.stderr.contains(
            "The projects are: apps/server, web.\nHINT:  Run \"pgfresh init\" there: cd apps/server."
        ),
        "{outcome}"
    );
}

#[test]
fn unusual_files_neither_stop_nor_fail_init() {
    let scene = Scene::new(User::Ourselves);
    let path = |name: &str| scene.directory.join(name);
    for name in ["compose.yaml", "package.json", ".env", "knexfile.js"] {
        assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
    }
    scene.write("docker-compose.yml", "services:\n\tdb: {image: postgres:16}\n");
    symlink(".", path("loop")).unwrap();
    symlink("nowhere", path("alembic.ini")).unwrap();
    fs::create_dir(path("manage.py")).unwrap();
    let name: PathBuf = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"caf\xe9.sql").into();
    fs::write(path("").join(name), "").unwrap();
    let outcome = init(&scene, &scene.directory, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let said: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{outcome}");
    assert_eq!(said[0], "pgfresh: could not read \"compose.yaml\": it is not a regular file");
    assert!(said[1].starts_with("pgfresh: could not read \"docker-compose.yml\": line 2: "), "{outcome}");
}

/// Covers the image's role and database, initdb's locale, a setting, init scripts of each kind, and migrations.
#[test]
fn suite_finds_all_parts_of_compose_service() {
    let scene = Scene::new(User::Ourselves);
    scene.write(
        "compose.yaml",
        "services:\n  db:\n    image: postgres:15-alpine\n    command: -c max_prepared_transactions=7 -c fsync=on\n    environment:\n      \
         POSTGRES_USER: keeper\n      POSTGRES_DB: shop\n      POSTGRES_PASSWORD: x\n      POSTGRES_INITDB_ARGS: --locale=C\n    \
         volumes:\n    - ./init:/docker-entrypoint-initdb.d\n",
    );
    scene.write("init/1.sql", "CREATE TABLE trace (step text); ALTER TABLE trace OWNER TO keeper;");
    let psql = "psql -Xq -v ON_ERROR_STOP=1";
    scene.write(
        "init/2.sh",
        &format!(
            "{psql} -U \"$POSTGRES_USER\" -d \"$POSTGRES_DB\" -c \"INSERT INTO trace VALUES ('shell')\""
        ),
    );
    scene.write("sql/init.sql.txt", "INSERT INTO trace VALUES ('packed')");
    scene.write("migrations/1.sql", "INSERT INTO trace VALUES ('one');");
    scene.write("migrations/2.sql", "INSERT INTO trace VALUES ('two');");
    let pack = Command::new("sh")
        .args(["-c", "gzip -c sql/init.sql.txt >init/3.sql.gz"])
        .current_dir(&scene.directory)
        .status()
        .unwrap();
    assert!(pack.success());
    let outcome = init(&scene, &scene.directory, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let ask = "SELECT string_agg(step, ' '), current_database(), (SELECT tableowner FROM pg_tables WHERE tablename = 'trace'), \
        current_setting('max_prepared_transactions'), (SELECT datcollate FROM pg_database WHERE datname = current_database()) FROM trace";
    let answer = scene.query(&[], ask);
    assert_eq!(answer, "shell packed one two|shop|keeper|7|C", "{outcome}");
}

#[test]
fn command_of_migration_tool_builds_template() {
    let scene = Scene::new(User::Ourselves);
    scene.write("alembic.ini", "[alembic]\nscript_location = %(here)s/versions\n");
    scene.write("versions/1.sql", "CREATE TABLE item (id int);");
    scene.write("requirements.txt", "");
    let folder = scene.write_program(
        "tools/alembic",
        &format!("test \"$*\" = 'upgrade head' && {} -Xqf versions/1.sql \"$DATABASE_URL\"", ground::psql()),
    );
    let outcome = init(&scene, &scene.directory, &[]);
    assert!(outcome.stdout.contains("  pgfresh run -- pytest "), "{outcome}");
    let path = format!("{}:{}", folder.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = scene.pgfresh(["run", "--", "psql", "-XAtqc", "SELECT count(*) FROM item"]);
    command.env("PATH", path);
    let outcome = finish(command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "0\n"), "{outcome}");
}

#[test]
fn database_of_init_script_becomes_template() {
    let scene = Scene::new(User::Ourselves);
    scene.write(
        "compose.yaml",
        "services:\n  db:\n    image: postgres:15\n    volumes: [\"./initdb:/docker-entrypoint-initdb.d\"]\n",
    );
    scene.write(".env", "DATABASE_URL=postgres://postgres:x@localhost/orders\n");
    scene.write("initdb/1.sql", "CREATE DATABASE orders;\n\\c orders\nCREATE TABLE trace (step text);");
    scene.write("initdb/2.sh", "psql -Xq -d orders -c \"INSERT INTO trace VALUES ('$POSTGRES_DB')\"");
    scene.write("migrations/1.sql", "INSERT INTO trace VALUES ('one');");
    let outcome = init(&scene, &scene.directory, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let ask = "SELECT string_agg(step, ' '), current_database() FROM trace";
    assert_eq!(scene.query(&[], ask), "postgres one|orders", "{outcome}");
}

/// On a full disk, `init` leaves no file: an empty file would block the next `init`.
#[test]
fn init_on_full_disk_leaves_no_file() {
    let Some(scene) = mounts::scene() else { return };
    let full = "mount -t tmpfs -o size=64k tmpfs \"$MOUNTED\"; cd \"$MOUNTED\"; touch go.mod
            { cat /dev/zero >fill || true; } 2>/dev/null";
    let outcome = mounts::run(&scene, &format!("{full}; trap 'ls -A' EXIT"), &["init"]);
    assert!(outcome.stderr.contains("could not write"), "{outcome}");
    assert!(outcome.stdout.ends_with("fill\ngo.mod\n"), "{outcome}");
}
