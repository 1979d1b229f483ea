//! Tests template files: imports from a live database, saved snapshots, and the files that a template is built from.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{CONFIG, assert_fails, project};
use crate::common::{Outcome, Scene, User, finish, ground};

#[test]
fn imports_have_roles_and_no_rows() {
    const EVERYTHING: &str = "
        CREATE ROLE shop; CREATE TABLE orders AS SELECT 1 AS id; ALTER TABLE orders OWNER TO shop;
        CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql AS 'SELECT 2 * $1';";
    let scene = project(User::Ourselves, CONFIG);
    scene.write("migrations/0001.sql", EVERYTHING);
    let program = ground::program().display();
    let said = scene.shell(&[], &format!("{program} template import \"$DATABASE_URL\" schema.sql"));
    assert!(said.contains("[template]\nsql = [\"schema.sql\"]\n"), "{said}");
    scene.write("pgfresh.toml", &said);
    let question = "SELECT count(*), twice(4), (SELECT tableowner FROM pg_tables WHERE tablename = 'orders') FROM orders";
    assert_eq!(scene.query(&[], question), "0|8|shop");
    let nowhere = "postgresql:///x?host=/nowhere";
    assert_fails(
        &scene.run(["template", "import", nowhere, "new.sql"]),
        &["could not read the database", "DETAIL"],
    );
    assert!(!scene.directory.join("new.sql").exists());
    // An import replaces an earlier import's file, but not a file that the user has written.
    let import = format!("{program} template import \"$DATABASE_URL\" schema.sql");
    scene.shell(&[], &import);
    scene.write("schema.sql", "-- Mine.");
    assert_fails(
        &scene.run(["run", "--", "sh", "-c", &import]),
        &["\"schema.sql\" already exists", "HINT:  Choose another name, or remove the file first."],
    );
    assert_eq!(fs::read_to_string(scene.directory.join("schema.sql")).unwrap(), "-- Mine.");
}

#[test]
fn saved_snapshots_make_templates() {
    let scene = project(User::Ourselves, "");
    let program = ground::program().display();
    let fill = "CREATE TABLE kept AS SELECT * FROM generate_series(1, 3); CREATE SEQUENCE number START 7";
    let said = scene.shell(
        &[],
        &format!(
            "psql -qc '{fill}' \"dbname=scratch\" && {program} snapshot scratch as full --save full.dump \
             && {program} status --json"
        ),
    );
    let config = "[template.full]\ndump = \"full.dump\"\n";
    assert!(said.contains(config), "{said}");
    // The server doesn't have the dumped copy any more.
    assert!(!said.contains("fresh_"), "{said}");
    scene.write("pgfresh.toml", config);
    assert_eq!(scene.query(&[], "SELECT count(*), nextval('number') FROM kept"), "3|7");
    for (words, expected) in [
        ("b --save none/x.dump", &["could not write \"none/x.dump\": No such file"][..]),
        ("b --save pgfresh.toml", &["\"pgfresh.toml\" already exists"]),
        (
            "'b 2' --save x.dump",
            &["\"b 2\" cannot be the name of a template: expected at most 46 letters, digits"],
        ),
        ("template1", &["\"template1\" cannot be the name of a template"]),
    ] {
        let command = format!("psql -qc '' dbname=scratch && {program} snapshot scratch as {words}");
        // If pgfresh can't write the file, it doesn't make a template either.
        let command = format!("{command} || {{ {program} status --json; exit 1; }}");
        let outcome = scene.run(["run", "--", "sh", "-c", &command]);
        assert_fails(&outcome, expected);
        assert!(!outcome.stdout.contains("\"name\":\"b"), "{outcome}");
        assert!(!scene.directory.join("x.dump").exists());
    }
}

/// SQL for properties of a database other than its contents. psql runs it in the database.
const PROPERTIES: &str = r#"
    CREATE ROLE bob; CREATE ROLE "Odd Role";
    ALTER DATABASE :"DBNAME" OWNER TO bob;
    ALTER DATABASE :"DBNAME" SET search_path = sales, "B c";
    ALTER DATABASE :"DBNAME" SET timezone = 'Europe/Berlin';
    ALTER DATABASE :"DBNAME" SET app.tenant = E'it''s \\;
ALTER DATABASE';
    ALTER ROLE "Odd Role" IN DATABASE :"DBNAME" SET statement_timeout = '11s';
    ALTER DATABASE :"DBNAME" CONNECTION LIMIT 7;
    REVOKE TEMPORARY ON DATABASE :"DBNAME" FROM PUBLIC; GRANT CREATE ON DATABASE :"DBNAME" TO "Odd Role";
    COMMENT ON DATABASE :"DBNAME" IS 'mine; DATABASE'"#;

const PROPERTIES_SHOWN: &str = "SELECT pg_get_userbyid(datdba), shobj_description(d.oid, 'pg_database'), datconnlimit, ARRAY(SELECT unnest(datacl)::text ORDER BY 1), \
    (SELECT array_agg(setrole::regrole || ' ' || setconfig::text ORDER BY setrole::regrole::text) FROM pg_db_role_setting \
     WHERE setdatabase = d.oid) FROM pg_database d WHERE datname = current_database()";

#[test]
fn an_import_keeps_the_properties_of_the_database() {
    let scene = project(User::Ourselves, CONFIG);
    scene.write("properties.sql", PROPERTIES);
    let program = ground::program().display();
    let text = format!(
        "psql -qf properties.sql && psql -Atc \"{PROPERTIES_SHOWN}\" >shown && \
         {program} template import \"$DATABASE_URL\" schema.sql"
    );
    scene.write("pgfresh.toml", &scene.shell(&[], &text));
    let shown = fs::read_to_string(scene.directory.join("shown")).unwrap();
    assert!(shown.contains("mine; DATABASE|7|") && shown.contains("Europe/Berlin"), "{shown}");
    assert_eq!(scene.query(&[], PROPERTIES_SHOWN), shown.trim_end());
}

#[test]
fn saved_snapshots_keep_database_properties() {
    let scene = project(User::Ourselves, "");
    scene.write("properties.sql", PROPERTIES);
    scene.write("roles.sql", "CREATE ROLE bob; CREATE ROLE \"Odd Role\"");
    let program = ground::program().display();
    let text = format!(
        "psql -qf properties.sql dbname=scratch && {program} snapshot scratch as full --save full.dump >&2 && \
         psql -Atc \"{PROPERTIES_SHOWN}\" \"dbname=x options='-c pgfresh.template=full'\""
    );
    let shown = scene.shell(&[], &text);
    assert!(shown.contains("mine; DATABASE|7|") && shown.contains("Europe/Berlin"), "{shown}");
    scene.write("pgfresh.toml", "[template]\nsql = \"roles.sql\"\ndump = \"full.dump\"\n");
    assert_eq!(scene.query(&[], PROPERTIES_SHOWN), shown.trim_end());
    // Without the roles, pgfresh builds the template and reports which roles are missing.
    scene.write("pgfresh.toml", "[template]\ndump = \"full.dump\"\n");
    let outcome = scene.run(["run", "--", ground::psql(), "-XAtc", PROPERTIES_SHOWN]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stdout.starts_with("postgres|mine; DATABASE|7|"), "{outcome}");
    let left_out = "is built without \"ALTER ROLE \"Odd Role\" IN DATABASE \"app\" SET statement_timeout TO '11s'\": \
        role \"Odd Role\" does not exist\n";
    assert!(outcome.stderr.contains(left_out), "{outcome}");
}

/// pgfresh makes the snapshot even if it can't write the file, and reports the failure.
#[test]
fn unwritten_snapshots_exist_in_the_server() {
    let scene = project(User::Ourselves, "");
    let real = std::path::Path::new(ground::psql()).parent().unwrap();
    scene.write_program("bin/postgres", &format!("exec '{}/postgres' \"$@\"", real.display()));
    scene.write_program("bin/initdb", &format!("exec '{}/initdb' \"$@\"", real.display()));
    scene.write_program(
        "bin/pg_dump",
        "echo 'pg_dump: error: no luck' >&2; echo 'pg_dump: detail: none' >&2; exit 1",
    );
    let bin = scene.directory.join("bin");
    std::fs::set_permissions(&bin, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = ground::program().display();
    let command = format!(
        "{} -qc '' dbname=scratch; export PGFRESH_POSTGRES='{}'; {program} snapshot scratch as b --save x.dump",
        ground::psql(),
        bin.display()
    );
    let outcome = scene.run(["run", "--", "sh", "-c", &command]);
    assert_fails(
        &outcome,
        &[
            "pgfresh: template \"b\" was created, but could not be written to the file: could not read the database: pg_dump ended with exit",
            "DETAIL:  Output: pg_dump: error: no luck\n",
        ],
    );
    assert!(!scene.directory.join("x.dump").exists() && !scene.directory.join("x.dump.part").exists());
}

#[test]
fn template_files_are_shown_one_per_line() {
    let scene = project(User::Ourselves, "[template]\nsql = 'migrations/*.sql'\n");
    scene.write("migrations/0002.sql", "");
    let shown = scene.run(["template", "show"]).stdout;
    assert!(
        shown.contains("\n  list of SQL files: migrations/0001.sql\n    migrations/0002.sql\n  "),
        "{shown}"
    );
}

/// Runs pgfresh in the scene's folder `shop`, with a psql command that counts the tables.
fn count_tables(scene: &Scene) -> Outcome {
    let query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let mut command = scene.pgfresh(["run", "-v", "--", ground::psql(), "-XAtc", query]);
    command.current_dir(scene.directory.join("shop"));
    finish(command)
}

#[test]
fn ignore_files_above_the_repository_hide_no_migration() {
    let scene = project(User::Ourselves, "");
    scene.write(".gitignore", "2.sql\n");
    for root in [".git/HEAD", "shop/.git/HEAD"] {
        scene.write(root, "ref: refs/heads/main\n");
    }
    let config = "[template]\nsetup = 'cat [12].sql | psql -Xq'\ninputs = ['*.sql']\n";
    scene.write("shop/pgfresh.toml", config);
    scene.write("shop/1.sql", "CREATE TABLE one ();");
    assert_eq!(count_tables(&scene).stdout, "1\n");
    scene.write("shop/2.sql", "CREATE TABLE two ();");
    let outcome = count_tables(&scene);
    assert_eq!(outcome.stdout, "2\n", "{outcome}");
}

#[test]
fn only_used_unreadable_paths_are_errors() {
    let scene = project(User::Nobody, "");
    let shop = scene.directory.join("shop");
    let config = |inputs: &str| format!("[template]\nsetup = 'psql -Xqf db/1.sql'\ninputs = [{inputs}]\n");
    scene.write("shop/pgfresh.toml", &config("'**/*.sql'"));
    scene.write("shop/db/1.sql", "CREATE TABLE one ();");
    scene.write("shop/closed/2.sql", "");
    symlink("nowhere", shop.join("db/old.sql")).unwrap();
    fs::set_permissions(shop.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let outcome = count_tables(&scene);
    assert_eq!(outcome.stdout, "1\n", "{outcome}");
    for skipped in [
        "\"closed\" in the search for inputs: Permission denied",
        "\"db/old.sql\" in the search for inputs: No such",
    ] {
        assert!(outcome.stderr.contains(&format!("pgfresh: skipped {skipped}")), "{outcome}");
    }
    for (wanted, words) in [
        (
            "'closed'",
            &["could not read \"", "/closed\": Permission denied", "HINT:  Make it readable (chmod u+r)."][..],
        ),
        ("'closed/*.sql'", &["/closed\": Permission denied"]),
        ("'closed/2.sql'", &["/closed/2.sql\": Permission denied"]),
        (
            "'db/old.sql'",
            &["/db/old.sql\": it is a link to \"nowhere\", which does not exist", "HINT:  Repair the link"],
        ),
    ] {
        scene.write("shop/pgfresh.toml", &config(wanted));
        assert_fails(&count_tables(&scene), words);
    }
    scene.write("shop/pgfresh.toml", "[template]\nsql = 'db/*.sql'\n");
    assert_fails(
        &count_tables(&scene),
        &["/db/old.sql\": it is a link to \"nowhere\", which does not exist"],
    );
    fs::set_permissions(shop.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}
