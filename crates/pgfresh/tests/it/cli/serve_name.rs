//! Tests that `pgfresh serve --name` keeps data, port and password from one start to the next,
//! whatever ends the server.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::leftovers::children_of;
use crate::common::{Outcome, Scene, User, collect, finish, ground, line_of, postgres};

/// Makes a project whose template has one row.
fn project(user: User) -> Scene {
    with_template(Scene::new(user))
}

fn with_template(scene: Scene) -> Scene {
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", "CREATE TABLE note AS SELECT 'of the template' AS text;");
    scene
}

/// Returns a `pgfresh` command in `scene` whose persistent data are in the subfolder `data`.
fn pgfresh(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.pgfresh(words);
    command.env("XDG_DATA_HOME", scene.directory.join("data"));
    command
}

/// Named server that is running.
struct Named {
    child: Child,
    /// Line that the server printed when it was ready.
    ready: Value,
    lifeline: ChildStdin,
}

impl Named {
    fn start(scene: &Scene, options: &[&str]) -> Self {
        let words = [&["serve", "--json", "--name", "dev"], options].concat();
        let mut command = pgfresh(scene, &words);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ready = line_of(child.stdout.as_mut().unwrap());
        let lifeline = child.stdin.take().unwrap();
        Self { child, ready: serde_json::from_str(&ready).unwrap(), lifeline }
    }

    fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    fn query(&self, sql: &str) -> String {
        psql(self.url(), sql)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the server with `signal`.
    fn end(self, signal: Signal) -> Outcome {
        self.signal(signal);
        collect(self.child)
    }
}

fn psql(url: &str, sql: &str) -> String {
    let output = Command::new(ground::psql()).args([url, "-XAtqc", sql]).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).unwrap().trim().to_owned()
}

/// Returns the only server's data directory.
fn home(scene: &Scene) -> PathBuf {
    let mut entries = fs::read_dir(scene.directory.join("data/pgfresh")).unwrap().flatten();
    let path = entries.next().unwrap().path();
    assert!(entries.next().is_none());
    path
}

fn failure(scene: &Scene, options: &[&str]) -> String {
    let outcome = finish(pgfresh(scene, &[&["serve", "--name", "dev"], options].concat()));
    assert_eq!(outcome.code, Some(1), "{outcome}");
    outcome.stderr
}

#[test]
fn url_and_data_stay_until_they_are_reset() {
    for &user in User::all() {
        let scene = project(user);
        let first = Named::start(&scene, &[]);
        let url = first.url().to_owned();
        assert!(url.ends_with("/app"), "{url}");
        assert_eq!(first.query("SELECT text FROM note"), "of the template");
        let durable = "SELECT string_agg(current_setting(name), ' ') FROM unnest('{fsync,full_page_writes,synchronous_commit}'::text[]) name";
        assert_eq!(first.query(durable), "on on on");
        first.query("INSERT INTO note VALUES ('mine')");
        first.query("CREATE DATABASE another");
        assert!(psql(&url.replace("/app", "/none"), "SELECT 1").contains("\"none\" does not exist"));
        let outcome = first.end(Signal::INT);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(outcome.stderr.contains("pgfresh: server \"dev\" keeps its data in \""), "{outcome}");
        assert!(!outcome.stderr.contains("were changed"), "{outcome}");
        scene.assert_nothing_left("after the server");

        let again = Named::start(&scene, &[]);
        assert_eq!(again.url(), url);
        assert_eq!(
            again.query("SELECT string_agg(text, ', ' ORDER BY text) FROM note"),
            "mine, of the template"
        );
        assert_eq!(psql(&url.replace("/app", "/another"), "SELECT 1"), "1");
        assert_eq!(again.end(Signal::TERM).stderr, "");
        scene.write("schema.sql", "CREATE TABLE note AS SELECT 'of the new template' AS text;");
        let changed = Named::start(&scene, &[]);
        assert_eq!(changed.query("SELECT count(*) FROM note"), "2");
        let outcome = changed.end(Signal::HUP);
        let said = "pgfresh: the template has changed since server \"dev\" got its data\nHINT:  ";
        assert!(outcome.stderr.starts_with(said) && outcome.stderr.contains("--reset"), "{outcome}");
        let calm = Named::start(&scene, &[]);
        assert_eq!(calm.end(Signal::INT).stderr, "", "it is said once");

        let reset = Named::start(&scene, &["--reset"]);
        assert_eq!(
            (reset.query("SELECT text FROM note"), reset.url()),
            ("of the new template".into(), &*url)
        );
        reset.end(Signal::INT);
        let files = [home(&scene).join("about"), home(&scene).join("lock")];
        for path in files {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
        }
        let chosen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let moved = Named::start(&scene, &["--port", &chosen]);
        assert!(moved.url().contains(&format!(":{chosen}/")), "{}", moved.url());
        moved.end(Signal::INT);
        let there = Named::start(&scene, &[]);
        assert!(there.url().contains(&format!(":{chosen}/")), "it is remembered: {}", there.url());
        there.end(Signal::INT);
    }
}

/// Returns all descendants of `owner`, followed by `owner` itself.
fn family(owner: u32) -> Vec<u32> {
    let mut all: Vec<u32> =
        children_of(owner).iter().flat_map(|child| family(child.pid.cast_unsigned())).collect();
    all.push(owner);
    all
}

#[test]
fn kills_leave_recoverable_data_only() {
    for &user in User::all() {
        let scene = project(user);
        let first = Named::start(&scene, &[]);
        let url = first.url().to_owned();
        first.query("CREATE TABLE kills (number int); INSERT INTO kills VALUES (0)");
        let mut server = first;
        for number in 1..=3 {
            server.query(&format!("INSERT INTO kills VALUES ({number})"));
            let family = if number == 1 { vec![server.child.id()] } else { family(server.child.id()) };
            // The first round kills only pgfresh. The other rounds kill all processes almost at once, as when the
            // machine crashes, and the postmaster before its owner.
            for pid in family {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = server.child.wait();
            server = Named::start(&scene, &[]);
            assert_eq!(server.url(), url);
            assert_eq!(server.query("SELECT count(*) FROM kills"), (number + 1).to_string());
        }
        let log = fs::read_to_string(server.ready["log"].as_str().unwrap()).unwrap();
        assert!(log.contains("automatic recovery"), "{log}");
        assert_eq!(server.end(Signal::INT).code, Some(0));
        scene.assert_nothing_left("after the kills");
        // If a server dies before its data are complete, the next start makes new data, and keeps the URL.
        let about = fs::read_to_string(home(&scene).join("about")).unwrap();
        let incomplete = about.replace("\"complete\":true", "\"complete\":false");
        fs::write(home(&scene).join("about"), incomplete).unwrap();
        let anew = Named::start(&scene, &[]);
        assert_eq!(anew.url(), url);
        assert_eq!(anew.query("SELECT to_regclass('kills') IS NULL, text FROM note"), "t|of the template");
        anew.end(Signal::INT);
    }
}

#[test]
fn status_and_stop_find_named_servers() {
    // The cache is new, because the test stops all servers in the cache.
    let scene = with_template(Scene::with_empty_cache(User::Ourselves));
    let server = Named::start(&scene, &[]);
    server.query("INSERT INTO note VALUES ('mine')");
    let (url, secret) = (server.url().to_owned(), server.ready["password"].as_str().unwrap().to_owned());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(&secret), "{}", entry.path().display());
    }
    let status = scene.run(["status"]).stdout;
    assert!(status.starts_with(&format!("server dev: {url}\npage http://127.0.0.1:")), "{status}");
    let open = || {
        let mut command = scene.pgfresh(["open"]);
        finish({
            command.env("BROWSER", "true");
            command
        })
        .stdout
    };
    let page_of = |url: &str| {
        let address = url.split_once('@').unwrap().1;
        format!("opened http://{}/\n", address.split_once('/').unwrap().0)
    };
    assert_eq!(open(), page_of(&url));
    // The background server is a different server, and starts first.
    let usual = scene.run(["url"]).stdout;
    assert!(!usual.contains(&secret), "{usual}");
    assert_eq!(open(), page_of(&usual));
    let status: Value = serde_json::from_str(&scene.run(["status", "--json"]).stdout).unwrap();
    assert_eq!(
        (&status["named"][0]["name"], &status["named"][0]["url"]),
        (&"dev".into(), &url.as_str().into())
    );
    assert_eq!(scene.run(["stop"]).stdout, "stopped the background server\n");
    let staying = scene.run(["stop"]).stdout;
    assert!(
        staying.starts_with("nothing to stop; server \"") && staying.contains(" keeps running"),
        "{staying}"
    );
    assert_eq!(finish(pgfresh(&scene, &["sweep", "--kept"])).code, Some(0));
    assert_eq!(server.query("SELECT count(*) FROM note"), "2");
    let stopped = Named::start_other(&scene);
    assert_eq!(scene.run(["stop", "--all"]).stdout, "stopped 2 servers\n");
    for server in [server, stopped] {
        assert_eq!(collect(server.child).code, Some(0));
    }
    assert_eq!(finish(pgfresh(&scene, &["sweep", "--kept"])).code, Some(0));
    assert_eq!(finish(pgfresh(&scene, &["template", "rm", "--all"])).code, Some(0));
    let again = Named::start(&scene, &[]);
    assert_eq!(again.query("SELECT count(*) FROM note"), "2");
    drop(again.lifeline);
    assert_eq!(collect(again.child).code, Some(0), "the end of standard input is that of the server");
}

impl Named {
    /// Starts a second server for the project, with a different name.
    fn start_other(scene: &Scene) -> Self {
        let mut child = pgfresh(scene, &["serve", "--json", "--name", "Other_1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ready = line_of(child.stdout.as_mut().unwrap());
        let lifeline = child.stdin.take().unwrap();
        Self { child, ready: serde_json::from_str(&ready).unwrap(), lifeline }
    }
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "names the process that listens on a port")]
fn conflicts_are_named_with_a_hint() {
    let scene = project(User::Ourselves);
    let server = Named::start(&scene, &[]);
    let pid = server.child.id();
    let runs = failure(&scene, &[]);
    assert_eq!(
        runs,
        format!(
            "pgfresh: server \"dev\" of this project is already running (process {pid})\n\
             HINT:  \"pgfresh status\" prints its URL.\n"
        )
    );
    // Another project can use the name, but not the port.
    let other = project(User::Ourselves);
    let port = server.ready["port"].to_string();
    let taken = failure(&other, &["--port", &port]);
    let project = fs::canonicalize(&scene.directory).unwrap();
    let who = format!("server \"dev\" of \"{}\" (process {pid})", project.display());
    assert_eq!(
        taken,
        format!(
            "pgfresh: could not listen on 127.0.0.1:{port}: {who} already does\n\
             HINT:  Stop it, or choose another port with --port.\n"
        )
    );
    assert!(!other.directory.join("data/pgfresh").exists());
    let neighbour = Named::start(&other, &[]);
    assert_ne!(neighbour.ready["port"].to_string(), port);
    neighbour.end(Signal::INT);
    server.end(Signal::INT);

    let foreign = TcpListener::bind(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    let taken = failure(&scene, &[]);
    let who = format!("(process {}) already does\nHINT:  ", std::process::id());
    assert!(taken.starts_with("pgfresh: could not listen on 127.0.0.1:") && taken.contains(&who), "{taken}");
    drop(foreign);
}

#[test]
fn unusable_data_stay_and_names_are_checked() {
    let scene = project(User::Ourselves);
    Named::start(&scene, &[]).end(Signal::INT);
    let newer = postgres(18);
    let refused = failure(&scene, &["--postgres", &newer]);
    assert!(refused.starts_with("pgfresh: cannot start server \"dev\" with PostgreSQL 18: its data is from PostgreSQL 15\nHINT:  Start it with --postgres 15, or with --reset"), "{refused}");
    let reset = Named::start(&scene, &["--postgres", &newer, "--reset"]);
    assert_eq!(reset.query("SELECT current_setting('server_version_num')::int / 10000"), "18");
    reset.end(Signal::INT);
    fs::write(home(&scene).join("about"), "{").unwrap();
    let damaged = failure(&scene, &[]);
    assert!(damaged.starts_with("pgfresh: cannot read \"") && damaged.contains("--reset"), "{damaged}");
    for name in ["", "a/b", "..", "-x", "a b", "é", &"x".repeat(41), "a\nb"] {
        let outcome = finish(pgfresh(&scene, &["serve", &format!("--name={name}")]));
        assert_eq!(outcome.code, Some(2), "{name:?}: {outcome}");
    }
    assert_eq!(scene.run(["serve", "--reset"]).code, Some(2));
    assert_eq!(scene.run(["serve", "--shared", "--name", "dev"]).code, Some(2));
    assert!(Path::new(&scene.directory).join("data/pgfresh").read_dir().unwrap().count() == 1);
}
