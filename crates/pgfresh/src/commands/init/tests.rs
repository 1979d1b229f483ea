use std::fs;

use proptest::prelude::*;

use super::*;

fn write_file(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the text for a folder with these files, after checking that pgfresh's parser accepts the text.
fn text_for(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [(".git/HEAD", "")].iter().chain(files) {
        write_file(folder.path(), file, text);
    }
    let text = config::text(&Discovery::of(folder.path()));
    if let Err(failure) = settings::check(&text, &folder.path().join(FILE)) {
        panic!("{failure}\n{text}");
    }
    text
}

/// Returns the lines that aren't comments.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

proptest! {
    /// A value from a project file must neither make the written file invalid nor escape from its comment or string.
    #[test]
    fn hostile_values_stay_in_their_places(
        value in "([ -~é\\n\\t\u{7f}\u{85}\u{2028}]|'''|\"\"\"|\\\\u|\\]\n\\[cache\\]){0,40}",
        name in "[ -~é]{1,60}",
    ) {
        let yaml = |text: &str| serde_json::Value::from(text.replace('$', "$$")).to_string();
        let compose = format!(
            "services:\n  {}:\n    image: {}\n    command: [-c, {}, {}]\n    environment:\n      POSTGRES_DB: {}\n      POSTGRES_USER: {}\n      \
             POSTGRES_INITDB_ARGS: {}\n    volumes: [\"./init:/docker-entrypoint-initdb.d\"]\n",
            yaml(&name), yaml(&format!("postgres:16{value}")), yaml(&format!("my.setting={value}")), yaml(&value), yaml(&name), yaml(&value), yaml(&value),
        );
        let text = text_for(&[
            ("compose.yaml", &compose),
            ("init/1.sql", &format!("GRANT ALL ON x TO \"{value}\"")),
            ("init/2.sh", ""),
            ("alembic.ini", "script_location = migrations\n"),
            ("migrations/env.py", ""),
        ]);
        for line in code(&text) {
            prop_assert!(!line.starts_with("[cache"), "{text}");
        }
    }
}

#[test]
fn empty_folder_gets_a_file_of_comments() {
    let text = text_for(&[]);
    assert_eq!(code(&text), [""; 0], "{text}");
    assert!(text.contains("found no migrations"), "{text}");
}

#[test]
fn setup_makes_what_image_makes_before_migrations() {
    let compose = "services:\n  db:\n    image: postgis/postgis:16-3.4\n    environment: {POSTGRES_USER: shop, POSTGRES_DB: sales, POSTGRES_INITDB_ARGS: --locale=C}\n    \
        volumes: [\"./init.sql:/docker-entrypoint-initdb.d/init.sql\"]\n";
    let text = text_for(&[
        ("compose.yaml", compose),
        ("init.sql", "ALTER SCHEMA public OWNER TO shop;\n"),
        ("db/1.sql", ""),
        ("db/2.sql", ""),
    ]);
    let psql = "psql -Xq -v ON_ERROR_STOP=1";
    assert_eq!(
        code(&text),
        [
            "[postgres]",
            "version = \"16\"",
            "[template.sales]",
            "prepare = '''",
            "set -e",
            &format!(
                "{psql} -d postgres -c 'DROP DATABASE \"sales\"' -c \"CREATE DATABASE \\\"sales\\\" TEMPLATE template0 LOCALE 'C'\""
            ),
            &format!("{psql} -c 'CREATE ROLE \"shop\" SUPERUSER LOGIN'"),
            &format!("{psql} -c 'CREATE EXTENSION IF NOT EXISTS postgis'"),
            &format!("{psql} -f init.sql"),
            "'''",
            "sql     = [\"db/*.sql\"]",
            "inputs  = [\"init.sql\"]",
        ],
        "{text}"
    );
}

#[test]
fn role_is_created_unless_a_script_does() {
    for (sql, expected) in [
        ("GRANT ALL ON SCHEMA public TO keeper;", 1),
        ("CREATE ROLE keeper LOGIN; GRANT ALL ON SCHEMA public TO keeper;", 0),
        ("create user \"keeper\"; ", 0),
        ("GRANT ALL ON SCHEMA public TO keepers;", 0),
        ("GRANT ALL ON SCHEMA public TO \"public\", keeper;", 1),
        ("CREATE ROLE keepers; ALTER SCHEMA public OWNER TO keeper;", 1),
        ("CREATE\n  USER keeper; ALTER SCHEMA public OWNER TO keeper;", 0),
        ("CREATE TABLE keeper (id int); SELECT * FROM keeper;", 0),
    ] {
        let text = text_for(&[(".env", "DATABASE_URL=postgres://keeper@h/app\n"), ("schema.sql", sql)]);
        assert_eq!(text.matches("CREATE ROLE").count(), expected, "{sql}: {text}");
    }
}

#[test]
fn mounted_migrations_run_once() {
    let compose = "services:\n  db:\n    image: postgres:16\n    volumes: [\"./migrations:/docker-entrypoint-initdb.d\"]\n";
    let text = text_for(&[("compose.yaml", compose), ("migrations/1.sql", ""), ("migrations/2.sql", "")]);
    assert_eq!(code(&text)[2..], ["[template]", "sql    = [\"migrations/*.sql\"]"], "{text}");
}

#[test]
fn comments_name_the_file_of_each_value() {
    let compose = "services:\n  db:\n    image: timescale/timescaledb:2.14.2-pg15\n    environment: {POSTGRES_PASSWORD: secret}\n    command: -c wal_level=logical -c fsync=off -c shared_preload_libraries=pg_cron,auto_explain\n";
    let text = text_for(&[
        ("compose.yaml", compose),
        (".env", "DATABASE_URL=postgresql+psycopg://me:secret@db/orders?x=1\n"),
        ("manage.py", "django"),
        ("a/migrations/1.py", ""),
    ]);
    for part in [
        "# compose.yaml: service \"db\", image timescale/timescaledb:2.14.2-pg15\n",
        "# Left out: fsync = off (",
        "# Your PostgreSQL needs these libraries, too: pg_cron.\n",
        "wal_level = \"logical\"\nshared_preload_libraries = \"pg_cron,auto_explain\"\n",
        "# manage.py: Django\n",
        "# .env: the database is called orders.\n[template.orders]\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn database_with_unusual_name_keeps_unnamed_template() {
    for name in ["my db", "postgres", "sql", "app", "", "näme", "pgfresh_x"] {
        let env = format!("DATABASE_URL=postgres://u@h/{name}\n");
        let text = text_for(&[(".env", &env), ("schema.sql", "")]);
        assert_eq!(code(&text), ["[template]", "sql    = [\"schema.sql\"]"], "{name}: {text}");
    }
}

#[test]
fn script_creates_database_instead_of_pgfresh() {
    let psql = "psql -Xq -v ON_ERROR_STOP=1";
    let drop = |name: &str| format!("{psql} -d postgres -c 'DROP DATABASE \"{name}\"'");
    for (environment, url, script, name) in [
        ("A: b", "/orders", "CREATE DATABASE orders;\n\\c orders\n", Some("orders")),
        ("POSTGRES_DB: main", "/orders", "create database \"orders\";", Some("orders")),
        ("A: b", "/", "CREATE DATABASE app;", Some("app")),
        ("A: b", "/orders", "CREATE DATABASE orders_2;", None),
        ("POSTGRES_DB: orders", "/orders", "SELECT 'CREATE DATABASE orders' WHERE false \\gexec", None),
    ] {
        let compose = format!(
            "services:\n  db:\n    image: postgres:16\n    environment: {{{environment}}}\n    volumes: [\"./i.sql:/docker-entrypoint-initdb.d/i.sql\"]\n"
        );
        let text = text_for(&[
            ("compose.yaml", &compose),
            (".env", &format!("DATABASE_URL=postgres://postgres:x@localhost{url}\n")),
            ("i.sql", script),
        ]);
        let expected = name.map(|name| [drop(name), "export PGDATABASE=postgres".to_owned()]);
        let lines = code(&text);
        match expected {
            Some([drop, export]) => assert_eq!(lines[4..7], ["set -e", &drop, &export], "{text}"),
            None => assert!(!text.contains("prepare"), "{text}"),
        }
    }
}
