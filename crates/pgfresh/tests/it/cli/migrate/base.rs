//! Tests the state before the migrations: the older revision's template, built from that
//! revision's files and settings.

use super::{ORDERS, Project};

/// Arguments of a command that prints the tables before the migrations.
const TABLES: [&str; 5] = ["roundtrip", "--up", "psql -XAtqc '\\dt' | cut -d '|' -f 2 >&2", "--down", "true"];

/// Returns the tables before the migrations.
#[track_caller]
fn tables(project: &Project, more: &[&str]) -> Vec<String> {
    let outcome = project.ends(&[&TABLES[..], more].concat(), 0);
    let lines = outcome.stderr.lines().filter(|line| !line.starts_with("pgfresh: "));
    let mut tables: Vec<_> = lines.map(str::to_owned).collect();
    tables.truncate(tables.len() / 2);
    tables
}

#[test]
fn base_is_where_the_branch_left_main() {
    let project = Project::new();
    project.write("migrations/0002_notes.sql", "CREATE TABLE notes (id int);");
    project.commit();
    assert_eq!(tables(&project, &[]), ["orders"]);
    assert_eq!(tables(&project, &["--from", "feature"]), ["notes", "orders"]);
    project.git(&["checkout", "--quiet", "main"]);
    project.write("migrations/0003_more.sql", "CREATE TABLE more (id int);");
    project.commit();
    project.git(&["tag", "v2"]);
    project.git(&["checkout", "--quiet", "feature"]);
    assert_eq!(tables(&project, &[]), ["orders"]);
    assert_eq!(tables(&project, &["--from", "v2"]), ["more", "orders"]);
}

#[test]
fn base_has_its_own_settings_and_dependencies() {
    let project = Project::with("[template]\nsetup = \"node_modules/tool\"\ninputs = [\"migrations/**\"]\n");
    project.write(".gitignore", "node_modules/\nbuild/\n");
    project.git(&["checkout", "--quiet", "main"]);
    project.commit();
    project.git(&["checkout", "--quiet", "-B", "feature"]);
    let tool = "test ! -e build && exec psql -Xqv ON_ERROR_STOP=1 -f migrations/0001_orders.sql";
    project.scene.write_program("project/node_modules/tool", tool);
    project.write("build/output", "");
    project.write("pgfresh.toml", "[template]\nsetup = \"false\"\ninputs = [\"migrations/**\"]\n");
    assert_eq!(tables(&project, &[]), ["orders"]);
}

#[test]
fn project_in_a_subfolder_has_a_base() {
    let project = Project::new();
    project.write("shop/pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    project.write("shop/schema.sql", "CREATE TABLE shop (id int);");
    project.commit();
    project.write("shop/schema.sql", "CREATE TABLE changed (id int);");
    let mut command = project.command(&[&TABLES[..], &["--from", "HEAD"]].concat());
    command.current_dir(project.folder().join("shop"));
    let outcome = crate::common::finish(command);
    assert!(outcome.code == Some(0) && outcome.stderr.contains("\nshop\n"), "{outcome}");
    assert!(!outcome.stderr.contains("changed\n"), "{outcome}");
}

#[test]
fn linked_worktree_has_a_base() {
    let project = Project::new();
    let other = project.scene.directory.join("other");
    project.git(&["worktree", "add", "--quiet", "-b", "other", other.to_str().unwrap()]);
    std::fs::write(other.join("migrations/0002_notes.sql"), "CREATE TABLE notes (id int);").unwrap();
    let mut command = project.command(&TABLES);
    command.current_dir(&other);
    let outcome = crate::common::finish(command);
    assert!(outcome.code == Some(0) && outcome.stderr.contains("orders\n"), "{outcome}");
    assert!(!outcome.stderr.contains("notes\n"), "{outcome}");
}

#[test]
fn revision_without_settings_uses_todays() {
    let project = Project::new();
    project.git(&["rm", "--quiet", "--cached", "pgfresh.toml"]);
    project.git(&["commit", "--quiet", "-m", "Forget the settings"]);
    project.git(&["branch", "--force", "main"]);
    let outcome = project.ends(&TABLES, 0);
    assert!(outcome.stderr.contains("has no \"pgfresh.toml\", so the current settings apply"), "{outcome}");
    assert!(outcome.stderr.contains("\norders\n"), "{outcome}");
}

#[test]
fn each_missing_revision_has_one_error() {
    let project = Project::new();
    project.fails(&[&TABLES[..], &["--from", "nothing"]].concat(), "there is no revision \"nothing\"");
    project.git(&["branch", "-m", "main", "trunk"]);
    project.fails(&TABLES, "cannot determine which branch the migrations are for");
    project.write("pgfresh.toml", "[budget]\nstatements = 5\n");
    project.commit();
    project.fails(&[&TABLES[..], &["--from", "HEAD"]].concat(), "there is no template in HEAD");

    let shallow = project.scene.directory.join("shallow");
    let url = format!("file://{}", project.folder().display());
    project.git(&["clone", "--quiet", "--depth", "1", &url, shallow.to_str().unwrap()]);
    project.git(&["-C", shallow.to_str().unwrap(), "remote", "set-head", "origin", "--delete"]);
    for from in [&["--from", "trunk"][..], &[]] {
        let mut command = project.command(&[&TABLES[..], from].concat());
        command.current_dir(&shallow);
        let outcome = crate::common::finish(command);
        let message = "DETAIL:  The clone is shallow.\nHINT:  Fetch it";
        assert!(outcome.code == Some(125) && outcome.stderr.contains(message), "{outcome}");
    }
}

#[test]
fn folder_without_a_commit_has_one_error() {
    let project = Project::new();
    let empty = project.scene.write("empty/pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    let folder = empty.parent().unwrap();
    let run = || {
        let mut command = project.command(&TABLES);
        command.current_dir(folder);
        crate::common::finish(command)
    };
    let outcome = run();
    assert!(outcome.stderr.contains("git said: not a git repository"), "{outcome}");
    project.git(&["init", "--quiet", folder.to_str().unwrap()]);
    let outcome = run();
    assert!(outcome.code == Some(125) && outcome.stderr.contains("has no commit yet"), "{outcome}");
}

#[test]
fn template_of_base_is_built_once() {
    let project = Project::new();
    project.write("migrations/0001_orders.sql", &format!("-- {}\n{ORDERS}", project.folder().display()));
    project.commit();
    let first = project.ends(&[&TABLES[..], &["--from", "HEAD"]].concat(), 0);
    assert!(first.stderr.contains("building template \"app\""), "{first}");
    let second = project.ends(&[&TABLES[..], &["--from", "HEAD"]].concat(), 0);
    assert!(!second.stderr.contains("building template"), "{second}");
    // The working tree has the same files, so a run starts from the same template.
    let mut run = project.scene.pgfresh(["run", "--", "true"]);
    run.env("PGFRESH_POSTGRES", "15").current_dir(project.folder());
    let run = crate::common::finish(run);
    assert!(run.code == Some(0) && !run.stderr.contains("building template"), "{run}");
}

#[test]
fn errors_of_the_base_name_its_revision() {
    for (config, message) in [
        ("[template]\nsql = \"migrations/*.sql\"\n", "migrations/0001_orders.sql"),
        (
            "[template]\nsetup = \"echo no; exit 3\"\ninputs = [\"migrations/**\"]\n",
            "setup ended with exit status: 3",
        ),
        ("[template]\nsql = [\"migrations/0002*.sql\"]\n", "migrations/0002*.sql"),
    ] {
        let project = Project::with(config);
        project.write("migrations/0001_orders.sql", "CREATE TABLE orders (");
        project.commit();
        for command in [&["check", "--", "true"][..], &TABLES, &["compare", "HEAD", "--", "true"]] {
            let from: &[&str] = if command[0] == "compare" { &[] } else { &["--from", "HEAD"] };
            let words = [&command[..1], from, &command[1..]].concat();
            let outcome = project.ends(&words, 125);
            let first =
                outcome.stderr.lines().find(|line| line.starts_with("pgfresh: in HEAD")).unwrap_or_default();
            assert!(first.contains(message), "{message:?} {outcome}");
            for absent in ["/checkout", "HINT:  \"pgfresh template build --keep", "--full"] {
                assert!(!outcome.stderr.contains(absent), "{absent:?} {outcome}");
            }
        }
    }
}

#[test]
fn errors_of_the_data_command_name_it() {
    let project = Project::with(
        "[template]\nsql = \"migrations/*.sql\"\n[migrate]\ndata = \"echo no; pwd >&2; exit 4\"\n",
    );
    let outcome = project.ends(&["check", "--", "true"], 125);
    let begin = "pgfresh: \"data\" of [migrate] failed on main (";
    assert!(outcome.stderr.contains(begin) && outcome.stderr.contains("exit status: 4"), "{outcome}");
    assert!(outcome.stderr.contains("\n    no\n"), "{outcome}");
    for absent in ["/checkout", "--keep", "setup"] {
        assert!(!outcome.stderr.contains(absent), "{absent:?} {outcome}");
    }
}
