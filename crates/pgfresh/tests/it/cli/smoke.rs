//! Tests that each command does its work once. `make check` runs these tests.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::leftovers::children_of;
use crate::common::{Outcome, Scene, User, collect, finish, ground, wait_until};

/// Project where commands run consecutively.
struct Project {
    scene: Scene,
    /// Command lines so far.
    ran: Vec<String>,
}

impl Project {
    fn new() -> Self {
        let scene = Scene::with_empty_cache(User::Ourselves);
        ground::copy_base_cache(scene.user, &scene.cache);
        scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
        scene.write("schema.sql", "CREATE TABLE item (id int); INSERT INTO item VALUES (1);");
        Self { scene, ran: Vec::new() }
    }

    /// Runs pgfresh with the words in `line`, followed by `more`. The command must succeed and print `expected`.
    #[track_caller]
    fn does(&mut self, line: &str, more: &[&str], expected: &str) {
        self.ends(line, more, 0, expected);
    }

    /// Runs pgfresh like [`Self::does`], but the command must end with `code`.
    #[track_caller]
    fn ends(&mut self, line: &str, more: &[&str], code: i32, expected: &str) {
        let mut command = self.command(line);
        command.args(more);
        self.check(line, &finish(command), code, expected);
    }

    /// Interrupts pgfresh when it has a child process. pgfresh must end with the exit code for Ctrl-C.
    #[track_caller]
    fn is_interrupted(&mut self, line: &str) {
        let child = self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until(&format!("a child of {line}"), || !children_of(child.id()).is_empty());
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        self.check(line, &collect(child), 130, "");
    }

    /// Runs `serve`, which ends when its standard input closes.
    fn serves(&mut self) {
        let mut command = self.command("serve");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdin.take());
        self.check("serve", &collect(child), 0, "postgresql://");
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.scene.pgfresh(line.split(' '));
        command.env("PGFRESH_POSTGRES", "15").env("BROWSER", "true").env("PGFRESH", ground::program());
        command
    }

    #[track_caller]
    fn check(&mut self, line: &str, outcome: &Outcome, code: i32, expected: &str) {
        assert_eq!(outcome.code, Some(code), "{line}: {outcome}");
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains(expected), "{line}, without {expected:?}: {outcome}");
        self.ran.push(line.to_owned());
    }
}

fn databases() -> Vec<String> {
    let mut project = Project::new();
    let count = "SELECT 'rows:' || count(*) FROM item";
    project.does("run --", &["psql", "-XAtqc", count], "rows:1");
    project.serves();
    project.does("url cart", &[], "/cart\n");
    project.does("psql cart --", &["-XAtq", "-c", "INSERT INTO item VALUES (2)", "-c", count], "rows:2");
    project.does("diff cart", &[], "public.item: 1 inserted");
    project.does("status", &[], "database cart");
    project.does("open", &[], "opened http://127.0.0.1:");
    project.does("snapshot cart as taken", &[], "");
    project.does("reset cart", &[], "");
    project.does("psql cart --", &["-XAtqc", count], "rows:1");
    project.does("release cart", &[], "");
    project.does("stop", &[], "stopped");
    project.does("sweep", &[], "");
    let server = "postgresql://$PGHOST:$PGPORT/$PGDATABASE?user=postgres";
    let import = format!("\"$PGFRESH\" template import \"{server}\" found.sql && cat found.sql");
    project.does("run --", &["sh", "-c", &import], "CREATE TABLE public.item");
    project.ran.push("template import".to_owned());
    let profile = format!("\"$PGFRESH\" profile --url \"{server}\" -- psql -XAtqc \"{count}\"");
    project.does("run --", &["sh", "-c", &profile], "rows:1");
    project.ran.push("profile".to_owned());
    project.ran
}

fn plans() -> Vec<String> {
    let mut project = Project::new();
    let import = "\"$PGFRESH\" template import --statistics \"$DATABASE_URL\" >production.json";
    project.does("run --", &["sh", "-c", import], "");
    let explain = "explain --statistics production.json";
    project.does(explain, &["SELECT * FROM item"], "Seq Scan on item");
    let run = "run --plans --statistics production.json --";
    project.does(run, &["psql", "-XAtqc", "SELECT * FROM item"], "production's plans");
    let insert = ["psql", "-XAtqc", "INSERT INTO item VALUES (2)"];
    project.does("faults --", &insert, "0 findings in 5 faults");
    project.ran
}

fn migrations() -> Vec<String> {
    let mut project = Project::new();
    let commit = "git init -q -b main . && git add pgfresh.toml schema.sql && \
        git -c user.name=tester -c user.email=tester@example.org commit -qm Begin";
    let mut git = Command::new("sh");
    git.args(["-euc", commit]).current_dir(&project.scene.directory);
    let outcome = finish(git);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let change = ["psql", "-Xqc", "ALTER TABLE item ADD note text"];
    project.does("migrate check --", &change, "ACCESS EXCLUSIVE on item");
    project.does("migrate roundtrip --up true --down true", &[], "leaves nothing behind");
    project.does("migrate compare main", &[], "does not differ");
    project.does("ci github --migrations", &[], "pgfresh migrate check");
    project.ran
}

fn templates() -> Vec<String> {
    let mut project = Project::new();
    project.does("template build", &[], "app ");
    project.does("template show", &[], ": built");
    project.does("template list", &[], "initdb of PostgreSQL 15");
    project.does("template push carried", &[], "");
    project.does("template keygen secret", &[], "");
    project.does("template sign carried --key secret", &[], "");
    let public = std::fs::read_to_string(project.scene.directory.join("secret.pub")).unwrap();
    let public = public.lines().last().unwrap();
    project.does("template verify carried --cache-key", &[public], "");
    project.does("template rm --all", &[], "removed ");
    project.does("template pull carried --cache-key", &[public], "");
    let remote = format!("file://{}/remote", project.scene.directory.display());
    std::fs::create_dir(project.scene.directory.join("remote")).unwrap();
    project.does("template push --key secret", &[&remote], "pushed");
    project.does("template gc --remote --older-than 1h --cache-remote", &[&remote], "");
    project.ran
}

fn tools() -> Vec<String> {
    let mut project = Project::new();
    std::fs::create_dir(project.scene.directory.join("man")).unwrap();
    project.does("man man", &[], "");
    project.does("completions bash", &[], "pgfresh");
    project.does("init --dry-run", &[], "# schema.sql: SQL");
    project.does("ci github", &[], "pgfresh run");
    project.does("postgres list", &[], "15.");
    project.does("postgres path", &[], "/bin\n");
    project.ends("postgres install 14 --no-download", &[], 1, "downloads are disabled");
    project.does("doctor --quick .", &[], "Commit");
    project.ran
}

/// Interrupts the benchmarks that take longer than ten seconds.
fn benchmarks() -> Vec<String> {
    let mut project = Project::new();
    project.does("bench suite --rounds 1 --path . --", &["true"], "PostgreSQL");
    project.does("bench events --batches 2 --batch 5 .", &[], "PostgreSQL");
    for line in [
        "bench start",
        "bench truncate .",
        "bench fresh",
        "bench pools",
        "bench rollback",
        "bench pgbench .",
        "bench gateway",
        "bench fleet",
        "bench fsync .",
    ] {
        project.is_interrupted(line);
    }
    project.ran
}

/// Six projects run concurrently, to use the time while benchmarks wait.
#[test]
fn every_command_works_once() {
    let ran: Vec<String> = thread::scope(|scope| {
        let all = [databases, plans, migrations, templates, tools, benchmarks].map(|play| scope.spawn(play));
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    let known = super::commands(&Scene::new(User::Ourselves));
    let names: Vec<_> = known.iter().map(|words| words.join(" ")).collect();
    let has_subcommands = |name: &String| names.iter().any(|other| other.starts_with(&format!("{name} ")));
    let leaves = names.iter().filter(|name| !name.is_empty() && !has_subcommands(name));
    let untested: BTreeSet<_> = leaves
        .filter(|name| !ran.iter().any(|line| format!("{line} ").starts_with(&format!("{name} "))))
        .collect();
    assert_eq!(untested, BTreeSet::new(), "commands without a smoke test");
}
