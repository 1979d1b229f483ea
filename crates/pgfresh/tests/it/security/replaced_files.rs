//! Tests that SQL that replaces its server's files never makes root's pgfresh harm other files or processes.
//!
//! A superuser's SQL can run programs as the server's account. These tests use them to replace files that pgfresh
//! reads, writes, gives away or removes with links, FIFOs and other things. Then pgfresh performs each of its
//! actions on a server's files. The test selects the files and the action at random. `PGFRESH_HOSTILE_SEED`
//! repeats a run's cases.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::depth::rounds;
use crate::common::gateway::Gateway;
use crate::common::leftovers::{guard_of, processes_about};
use crate::common::random::Random;
use crate::common::serve::Serve;
use crate::common::{Scene, User, as_root, end_of, finish, ground, line_of, wait_until};

/// Paths that an attack replaces, relative to the data directory. pgfresh opens, gives away,
/// removes or examines them.
const TARGETS: [&str; 26] = [
    "base",
    "base/1",
    "base/5",
    "global",
    "pg_wal",
    "pg_wal/000000010000000000000001",
    "pg_xact",
    "pg_tblspc/1",
    "pg_replslot",
    "PG_VERSION",
    "postgresql.conf",
    "postgresql.auto.conf",
    "postmaster.pid",
    "postmaster.opts",
    "global/pg_control",
    "../log",
    "../output",
    "../setup.log",
    "../owner.lock",
    "../server.lock",
    "../helper.lock",
    "../data",
    "../socket",
    "../socket/.s.PGSQL.5432",
    "../.s.PGSQL.5432",
    "../.s.PGSQL.5432.lock",
];

const FIFO: &str = r#"rm -rf "$t"; mkfifo "$t""#;
const ENDLESS: &str = r#"rm -rf "$t"; ln -s /dev/zero "$t""#;
/// Shell commands that replace `$t` with something else. `$v` is the victim's folder.
const REPLACEMENTS: [&str; 10] = [
    r#"mv "$t" "$t.away"; ln -s "$v" "$t""#,
    r#"mv "$t" "$t.away"; ln -s "$v/file" "$t""#,
    r#"rm -rf "$t"; ln -s "$v/new" "$t""#,
    FIFO,
    ENDLESS,
    r#"mv "$t" "$t.away"; ln "$v/readable" "$t""#,
    r#"rm -rf "$t"; mkdir -p "$t/a/b"; ln -s "$v" "$t/a/b/c"; ln -s "$v" "$t/d""#,
    r#"chmod 0 "$t""#,
    // Replaces and restores the file while pgfresh works.
    r#"(while :; do mv "$t" "$t.away"; ln -s "$v" "$t"; rm "$t"; mv "$t.away" "$t"; done) >&- 2>&- &"#,
    r#"mkdir -p "$t.deep"; cd "$t.deep" && for i in $(seq 1500); do mkdir d; cd d; done"#,
];

/// pgfresh's action after an attack.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// The command ends.
    Stop,
    /// The guard removes the files after pgfresh was killed.
    KillPgfresh,
    /// The next pgfresh removes the files after both pgfresh and the guard were killed.
    KillGuardAndPgfresh,
    /// The server becomes a template, and a copy of it starts.
    Publish,
    /// An HTTP request acts on a leased server.
    Act(&'static str),
    /// pgfresh resets the database, and reads the WAL to do so.
    Reset,
}

const THEN: [Then; 8] = [
    Then::Stop,
    Then::KillPgfresh,
    Then::KillGuardAndPgfresh,
    Then::Publish,
    Then::Act("restart"),
    Then::Act("crash"),
    Then::Act("stop"),
    Then::Reset,
];

/// Folders and files that belong to root and that no other user must be able to change, and a process that has opened
/// and locked one of the files.
struct Victim {
    folder: PathBuf,
    before: String,
    bystander: Child,
}

impl Victim {
    fn new(scene: &Scene) -> Self {
        let folder = scene.directory.join("victim");
        for below in ["1", "5", "sub", "base/1", "base/5", "d"] {
            fs::create_dir_all(folder.join(below)).unwrap();
        }
        let files = [
            "file",
            "readable",
            "1/file",
            "5/PG_VERSION",
            "sub/file",
            "base/1/1259",
            "base/5/file",
            "d/file",
        ];
        for file in files {
            fs::write(folder.join(file), format!("root's own {file}\n")).unwrap();
            fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::set_permissions(folder.join("readable"), fs::Permissions::from_mode(0o644)).unwrap();
        let file = File::open(folder.join("file")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let bystander = Command::new("sleep").arg("infinity").stdin(file).spawn().unwrap();
        let before = listing(&folder);
        Self { folder, before, bystander }
    }

    fn assert_unharmed(&mut self, context: &str) {
        assert_eq!(listing(&self.folder), self.before, "{context}");
        assert!(self.bystander.try_wait().unwrap().is_none(), "{context}: a bystander was ended");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
    }
}

/// Returns the names, owners, modes, link counts and contents of all files below `folder`.
fn listing(folder: &Path) -> String {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let meta = path.symlink_metadata().unwrap();
        let content = if meta.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
        let name = path.file_name().unwrap().display();
        let _ = writeln!(text, "{name} {mode:o} {uid} {gid} {content:?}");
        if meta.is_dir() {
            text += &listing(&path);
        }
    }
    text
}

/// Attack, and the action after it.
#[derive(Debug)]
struct Case {
    target: &'static str,
    replacement: &'static str,
    then: Then,
}

impl Case {
    fn play(&self) {
        let context = format!("{self:?}");
        let scene = Scene::new(User::Ourselves);
        let mut victim = Victim::new(&scene);
        let sql = self.sql(&scene, &victim.folder);
        match self.then {
            Then::Stop => {
                finish(scene.pgfresh(["run", "--", ground::psql(), "-Xqc", &sql]));
            }
            Then::KillPgfresh | Then::KillGuardAndPgfresh => self.kill(&scene, &sql),
            Then::Publish => {
                scene.write("attack.sql", &sql);
                finish(scene.pgfresh(["run", "--sql", "attack.sql", "--", "true"]));
                victim.assert_unharmed(&context);
                // If there is a next server from the cache, it doesn't contain any of the victim's files.
                let copied = scene.run(["run", "--sql", "attack.sql", "--", "sh", "-c", "true"]);
                assert!(!copied.stdout.contains("root's own"), "{context}");
                let cached =
                    Command::new("grep").args(["-rl", "root's own"]).arg(&scene.cache).output().unwrap();
                assert!(cached.stdout.is_empty(), "{context}: root's files are in the cache");
            }
            Then::Act(_) | Then::Reset => return self.act(scene, victim, &sql),
        }
        victim.assert_unharmed(&context);
        scene.assert_nothing_left(&context);
        let after = scene.run(["run", "--", "true"]);
        assert_eq!(after.code, Some(0), "{context}: {after}");
        victim.assert_unharmed(&context);
    }

    /// Returns the attack's SQL.
    fn sql(&self, scene: &Scene, victim: &Path) -> String {
        let (target, victim) = (self.target, victim.display());
        let script = format!("exec 2>&-\nt='{target}' v='{victim}'\n{}\ncat >/dev/null\n", self.replacement);
        let script = scene.write_program("attack", &script);
        format!("COPY (SELECT 1) TO PROGRAM '{}'", script.display())
    }

    fn kill(&self, scene: &Scene, sql: &str) {
        let context = format!("{self:?}");
        let shell = format!("{} -Xqc \"$1\"; echo attacked; cat", ground::psql());
        let mut command = scene.pgfresh(["run", "--", "sh", "-c", &shell, "sh", sql]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = line_of(child.stdout.take().unwrap());
        assert_eq!(said, "attacked\n", "{context}");
        if matches!(self.then, Then::KillGuardAndPgfresh) {
            guard_of(child.id()).expect("a guard").kill();
        }
        child.kill().unwrap();
        end_of(&mut child, &context);
        if matches!(self.then, Then::KillGuardAndPgfresh) {
            assert_eq!(scene.run(["run", "--", "true"]).code, Some(0), "{context}");
        }
    }

    /// Attacks a lease in `pgfresh serve` and performs the action on it.
    fn act(&self, scene: Scene, mut victim: Victim, sql: &str) {
        let context = format!("{self:?}");
        let isolation = if matches!(self.then, Then::Act(_)) { "server" } else { "clone" };
        scene.write("template.sql", "CREATE TABLE t (v text); INSERT INTO t VALUES ('x')");
        let serve = Serve::at(scene, ["--sql", "template.sql", "--isolation", isolation, "--linger", "60s"]);
        let gateway = Gateway { serve, major: 15 };
        for _ in 0..2 {
            // The attack might end the session, or the server.
            if let Ok(mut session) = gateway.connect("a", "") {
                let _ = session.rows("INSERT INTO t VALUES ('mine')");
                let _ = session.rows(sql);
            }
            // `serve` ends without its server.
            let _ = match self.then {
                Then::Act(action) => gateway.try_http("POST", &format!("/v1/databases/a/{action}"), ""),
                _ => gateway.try_http("POST", "/v1/databases/a/reset", r#"{"close_sessions": true}"#),
            };
            victim.assert_unharmed(&context);
        }
        let Gateway { mut serve, .. } = gateway;
        let _ = serve.end();
        victim.assert_unharmed(&context);
    }
}

#[test]
fn replaced_server_files_harm_no_other_user() {
    if !as_root("run servers as another user") {
        // For other users, the server runs as the same user as pgfresh, so SQL can't do more than that user.
        return;
    }
    let seed = std::env::var("PGFRESH_HOSTILE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Random::new().number());
    println!("PGFRESH_HOSTILE_SEED={seed}");
    let mut random = Random::seeded(seed);
    for number in 0..rounds(12) as usize {
        let case = Case {
            target: TARGETS[random.below(TARGETS.len())],
            replacement: REPLACEMENTS[random.below(REPLACEMENTS.len())],
            then: THEN[number % THEN.len()],
        };
        // PostgreSQL itself hangs when it starts and reads a FIFO, or a file without an end.
        if matches!(case.then, Then::Act(_)) && [FIFO, ENDLESS].contains(&case.replacement) {
            continue;
        }
        println!("{number}: {case:?}");
        case.play();
    }
}

/// Attacks that once succeeded, on the folder with databases, the log and the lock.
#[test]
fn links_in_place_of_files_are_harmless() {
    if !as_root("run servers as another user") {
        return;
    }
    for (target, replacement, then) in [
        ("base", REPLACEMENTS[0], Then::Stop),
        ("base", REPLACEMENTS[0], Then::KillPgfresh),
        ("../log", REPLACEMENTS[1], Then::Act("restart")),
        ("../server.lock", REPLACEMENTS[1], Then::KillPgfresh),
        ("postgresql.conf", REPLACEMENTS[1], Then::Act("restart")),
        ("postgresql.conf", FIFO, Then::Act("restart")),
        ("postmaster.pid", FIFO, Then::KillPgfresh),
        ("pg_wal", FIFO, Then::Reset),
        ("base", REPLACEMENTS[8], Then::Stop),
        ("base", REPLACEMENTS[8], Then::KillGuardAndPgfresh),
    ] {
        Case { target, replacement, then }.play();
    }
}

#[test]
fn programs_left_by_setups_cause_no_wait() {
    for &user in User::all() {
        let scene = Scene::new(user);
        scene.write("setup.sql", "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; sleep 1000 >&- 2>&- &'");
        let outcome = scene.run(["run", "--sql", "setup.sql", "--", "true"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        scene.assert_nothing_left("a program of the setup's");
    }
}

#[test]
fn directories_without_permissions_are_removed() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let sql = "COPY (SELECT 1) TO PROGRAM 'mkdir -p global/x/y; chmod 0 global/x/y global/x base'";
        finish(scene.pgfresh(["run", "--", ground::psql(), "-Xqc", sql]));
        wait_until("its end", || processes_about(&scene.place).is_empty());
        scene.assert_nothing_left("modes taken away");
    }
}
