//! Tests machines that need the same missing template concurrently: one machine builds it, and
//! the others wait for it.

use std::process::Child;
use std::thread;
use std::time::Duration;

use super::*;
use crate::common::random::Random;

/// Project whose setup records each of its runs, and ends once the file "go" exists.
const PROJECT: &str = r#"
[template]
inputs = ["pgfresh.toml"]
setup = '''
echo run >>runs
psql -Xqc 'CREATE TABLE orders AS SELECT generate_series(1, 1000) AS id'
while ! test -e go; do sleep 0.01; done
test ! -e broken
'''
"#;

/// Machines with separate caches and the same remote.
struct Machines<'a> {
    scene: &'a Scene,
    public: String,
    secret: String,
}

impl<'a> Machines<'a> {
    fn new(scene: &'a Scene) -> Self {
        let outcome = scene.run(["template", "keygen", "a.key"]);
        let (_, line) = outcome.stdout.split_once("[cache]\nkeys = [\"").expect(&outcome.stdout);
        let public = line.trim_end().strip_suffix("\"]").unwrap().to_owned();
        let secret = fs::read_to_string(scene.directory.join("a.key")).unwrap();
        fs::create_dir(scene.directory.join("store")).unwrap();
        Self { scene, public, secret }
    }

    /// Starts a build on a machine, which has the secret key if `pushes` is set.
    fn begin(&self, number: usize, pushes: bool) -> Child {
        let cache = self.scene.place.join(format!("cache-{number}"));
        if !cache.exists() {
            ground::copy_base_cache(self.scene.user, &cache);
        }
        let mut command = self.scene.pgfresh(["template", "build"]);
        command
            .env("PGFRESH_CACHE", &cache)
            .env("PGFRESH_CACHE_KEYS", &self.public)
            .env("PGFRESH_CACHE_REMOTE", format!("file://{}", self.store().display()))
            .env("PGFRESH_CACHE_PUSH", "always")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if pushes {
            command.env("PGFRESH_SIGNING_KEY", &self.secret);
        }
        command.spawn().unwrap()
    }

    fn store(&self) -> std::path::PathBuf {
        self.scene.directory.join("store")
    }

    fn notices(&self) -> usize {
        fs::read_dir(self.store().join("notices")).map_or(0, Iterator::count)
    }

    /// Returns how many times the setup has run.
    fn runs(&self) -> usize {
        fs::read_to_string(self.scene.directory.join("runs")).map_or(0, |text| text.lines().count())
    }

    fn wait_for_runs(&self, count: usize) {
        wait_until("the setup", || self.runs() >= count);
    }

    fn go(&self) {
        self.scene.write("go", "");
    }

    fn leave(&self, machines: usize) {
        for number in 0..machines {
            drop(fs::remove_dir_all(self.scene.place.join(format!("cache-{number}"))));
        }
    }
}

/// Returns the exit code and standard error.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

const WAITS: &str = "waiting for template \"app\", which another machine is building";

#[test]
fn one_machine_builds_for_all() {
    let scene = project(User::Ourselves, PROJECT);
    let machines = Machines::new(&scene);
    let count = 4;
    let children: Vec<_> = (0..count).map(|number| machines.begin(number, true)).collect();
    machines.wait_for_runs(1);
    // A machine that only reads also waits.
    let reader = machines.begin(count, false);
    thread::sleep(Duration::from_millis(500));
    machines.go();
    let said: Vec<_> = children.into_iter().chain([reader]).map(end).collect();
    assert!(said.iter().all(|(code, _)| *code == Some(0)), "{said:?}");
    assert_eq!(machines.runs(), 1, "{said:?}");
    let fetched = said.iter().filter(|(_, text)| text.contains("fetched template \"app\"")).count();
    assert_eq!(fetched, count, "{said:?}");
    assert!(said.last().unwrap().1.contains(WAITS), "{said:?}");
    assert_eq!(machines.notices(), 0);
    machines.leave(count + 1);
}

#[test]
fn failed_remote_builds_are_not_awaited_again() {
    let scene = project(User::Ourselves, PROJECT);
    let machines = Machines::new(&scene);
    scene.write("broken", "");
    let first = machines.begin(0, true);
    machines.wait_for_runs(1);
    let others: Vec<_> = (1..3).map(|number| machines.begin(number, true)).collect();
    thread::sleep(Duration::from_millis(500));
    machines.go();
    for child in [first].into_iter().chain(others) {
        let (code, said) = end(child);
        assert!(code == Some(1) && said.contains("is incomplete"), "{said}");
    }
    assert_eq!((machines.runs(), machines.notices()), (3, 0));
    machines.leave(3);
}

#[test]
fn another_machine_replaces_a_killed_builder() {
    let scene = project(User::Ourselves, PROJECT);
    let machines = Machines::new(&scene);
    let mut first = machines.begin(0, true);
    machines.wait_for_runs(1);
    wait_until("a notice", || machines.notices() == 1);
    thread::sleep(Random::new().moment(Duration::from_millis(1500)));
    first.kill().unwrap();
    first.wait().unwrap();
    let mut others: Vec<_> = (1..3).map(|number| machines.begin(number, true)).collect();
    machines.wait_for_runs(2);
    // The last machine finds the notice about a running build.
    others.push(machines.begin(3, true));
    machines.go();
    for child in others {
        let (code, said) = end(child);
        assert_eq!(code, Some(0), "{said}");
    }
    // If two machines notice this at the same moment, both might build. This moment is long if the machine is busy.
    assert!((2..4).contains(&machines.runs()), "{}", machines.runs());
    assert_eq!(machines.notices(), 0);
    machines.leave(4);
}

#[test]
fn untrusted_build_notices_are_ignored() {
    let scene = project(User::Ourselves, PROJECT);
    let machines = Machines::new(&scene);
    machines.go();
    let first = machines.begin(0, false);
    let (code, said) = end(first);
    assert_eq!(code, Some(0), "{said}");
    let shown = scene.run(["template", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let fingerprint = shown["fingerprint"].as_str().unwrap();
    fs::create_dir_all(machines.store().join("notices")).unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for text in [
        format!(
            "pgfresh building 1\nfingerprint {fingerprint}\nbuilder 0000000000000001\nbeat 1\nsigned {now}\n"
        ),
        "x".repeat(100_000),
        String::new(),
    ] {
        fs::write(machines.store().join("notices").join(fingerprint), text).unwrap();
        let (code, said) = end(machines.begin(1, false));
        assert!(code == Some(0) && !said.contains(WAITS), "{said}");
        machines.leave(2);
    }
}
