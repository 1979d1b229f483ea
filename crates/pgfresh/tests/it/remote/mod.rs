//! Tests the remote template cache: machines fetch the templates that other machines have built from real stores.
//! After any fault, the result is either the signed template, or a local build and one warning.

mod concurrent_pushes;
mod faults;
mod proxy;
mod stores;
mod trust;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::proxy::{Fault, Proxy};
use self::stores::{ALL, RunningStore, Store};
use crate::common::{Outcome, Scene, User, depth, finish, ground};

/// Configuration whose setup writes the time when it starts.
const CONFIG: &str = r#"
[template]
setup = "date +%s%N >>began; cat migrations/*.sql | psql -XAtq -v ON_ERROR_STOP=1"
inputs = ["migrations/**"]
"#;
/// SQL for several megabytes of data, partly compressible and partly almost incompressible.
const ROWS: &str = "CREATE TABLE rows AS SELECT i, md5(i::text) AS text FROM generate_series(1, 40000) i;";
const QUESTION: &str = "SELECT count(*), sum(i), md5(string_agg(text, '' ORDER BY i)) FROM rows";
const ANSWER: &str = "40000|800020000|";

/// Project, key pair, and machines by name.
struct Fleet {
    scene: Scene,
    public: String,
    secret: String,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Caches and stores belong to the test. Other files are leftovers of pgfresh.
        for entry in fs::read_dir(&self.scene.place).into_iter().flatten().flatten() {
            if entry.path().join("images").is_dir() || entry.file_name() == "store" {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
    }
}

impl Fleet {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    fn with(config: &str) -> Self {
        let scene = Scene::with_empty_cache(User::Ourselves);
        scene.write("pgfresh.toml", config);
        scene.write("migrations/0001.sql", ROWS);
        let (public, secret) = keygen(&scene, "key");
        Self { scene, public, secret }
    }

    /// Returns a machine's cache. A new machine's cache contains the base image.
    fn cache(&self, machine: &str) -> PathBuf {
        // The cache is in memory, because pgfresh waits for writes to a cache on a disk.
        let cache = self.scene.place.join(machine);
        if !cache.exists() {
            ground::copy_base_cache(self.scene.user, &cache);
        }
        cache
    }

    /// Removes a machine's cache, so that the next machine with this name is new.
    fn forget(&self, machine: &str) {
        drop(fs::remove_dir_all(self.scene.place.join(machine)));
    }

    /// Returns a command for pgfresh on a machine that uses the remote.
    fn pgfresh(&self, machine: &str, url: &str, variables: &[(&str, String)], words: &[&str]) -> Command {
        let mut command = self.scene.pgfresh(words);
        for (name, _) in std::env::vars() {
            if ["AWS_", "AZURE", "GOOGLE_", "GITHUB_", "CI"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.env("PGFRESH_CACHE", self.cache(machine)).env("PGFRESH_CACHE_KEYS", &self.public);
        command.env("PGFRESH_CACHE_REMOTE", url).envs(variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns a command for pgfresh on a machine that pushes its builds.
    fn pusher(&self, machine: &str, store: &RunningStore, words: &[&str]) -> Command {
        let mut command = self.pgfresh(machine, &store.writes, &store.variables, words);
        command.env("PGFRESH_SIGNING_KEY", &self.secret).env("PGFRESH_CACHE_PUSH", "always");
        command
    }

    fn reader(&self, machine: &str, store: &RunningStore, words: &[&str]) -> Command {
        self.pgfresh(machine, &store.reads, &store.variables, words)
    }

    /// Returns how many times the setup has run.
    fn builds(&self) -> usize {
        fs::read_to_string(self.scene.directory.join("began")).map_or(0, |text| text.lines().count())
    }

    /// Returns the template's fingerprint.
    fn fingerprint(&self) -> String {
        let shown = self.scene.run(["template", "show", "--json"]).stdout;
        let (_, rest) = shown.split_once("\"fingerprint\":\"").expect(&shown);
        rest.split('"').next().unwrap().to_owned()
    }
}

/// Makes a key pair at `file`. Returns the public key, and the text of the secret key.
fn keygen(scene: &Scene, file: &str) -> (String, String) {
    let outcome = scene.run(["template", "keygen", file]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let (_, line) = outcome.stdout.split_once("keys = [\"").expect(&outcome.stdout);
    let public = line.trim_end().strip_suffix("\"]").unwrap().to_owned();
    (public, fs::read_to_string(scene.directory.join(file)).unwrap())
}

/// Returns the arguments for a run of [`QUESTION`].
fn ask() -> Vec<&'static str> {
    vec!["run", "--", ground::psql(), "-XAtqc", QUESTION]
}

/// Checks the result of the question. Returns whether the template was fetched, and fails if there is
/// more than one warning.
fn assert_right(outcome: &Outcome, context: &str) -> bool {
    assert!(outcome.code == Some(0) && outcome.stdout.starts_with(ANSWER), "{context}: {outcome}");
    let warnings = warnings(outcome);
    assert!(warnings.len() <= 1, "{context}: {outcome}");
    let fetched = outcome.stderr.contains("fetched template");
    assert!(!(fetched && warnings.iter().any(|line| line.contains("is built here"))), "{context}: {outcome}");
    fetched
}

/// Returns the lines about remote failures.
fn warnings(outcome: &Outcome) -> Vec<&str> {
    outcome
        .stderr
        .lines()
        .filter(|line| line.contains("is built here: ") || line.contains("is not pushed: "))
        .collect()
}

#[test]
fn machines_fetch_templates_of_others() {
    for store in depth::some_of(ALL) {
        let context = format!("{store:?}");
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        let outcome = finish(fleet.pusher("builder", &running, &ask()));
        assert!(
            !assert_right(&outcome, &context) && outcome.stderr.contains("pushed template"),
            "{context}: {outcome}"
        );
        let outcome = finish(fleet.reader("reader", &running, &ask()));
        assert!(assert_right(&outcome, &context) && warnings(&outcome).is_empty(), "{context}: {outcome}");
        assert_eq!(fleet.builds(), 1, "{context}");
        // Push explicitly.
        let outcome = finish(fleet.pusher("builder", &running, &["template", "push"]));
        assert!(
            outcome.code == Some(0) && outcome.stdout.contains("is already in the remote"),
            "{context}: {outcome}"
        );
        let outcome = finish(fleet.reader("third", &running, &["template", "pull"]));
        assert!(outcome.code == Some(0) && outcome.stdout.contains("taken over"), "{context}: {outcome}");
        let outcome = finish(fleet.reader("third", &running, &["template", "pull"]));
        assert!(
            outcome.code == Some(0) && outcome.stdout.contains("is already in the cache"),
            "{context}: {outcome}"
        );
        let outcome = finish(fleet.pusher("third", &running, &["template", "list"]));
        assert!(
            outcome.stdout.contains(&format!("{}: 1 template, ", running.writes)),
            "{context}: {outcome}"
        );
        assert_eq!(fleet.builds(), 1, "{context}");
        collected(&fleet, &running, &context);
    }
}

/// Checks that "gc" removes everything, and that a pusher can start again.
fn collected(fleet: &Fleet, running: &RunningStore, context: &str) {
    let gc =
        |age| finish(fleet.pusher("third", running, &["template", "gc", "--remote", "--older-than", age]));
    let outcome = gc("1d");
    assert!(
        outcome.code == Some(0) && outcome.stdout.contains("removed 0 templates"),
        "{context}: {outcome}"
    );
    let outcome = gc("0s");
    assert!(
        outcome.code == Some(0) && outcome.stdout.contains("removed 1 template,"),
        "{context}: {outcome}"
    );
    let outcome = finish(fleet.reader("fourth", running, &["template", "pull"]));
    assert!(
        outcome.code == Some(1) && outcome.stderr.contains("there is no template"),
        "{context}: {outcome}"
    );
    let outcome = finish(fleet.pusher("fourth", running, &ask()));
    assert!(!assert_right(&outcome, context) && warnings(&outcome).is_empty(), "{context}: {outcome}");
    assert!(assert_right(&finish(fleet.reader("fifth", running, &ask())), context));
}

#[test]
fn only_new_parts_are_transferred() {
    let fleet = Fleet::with("[template]\nsql = [\"migrations/*.sql\"]\nsteps = \"append-only\"\n");
    let running = Store::File.start(&fleet.scene);
    let size = || {
        let blobs = fs::read_dir(running.folder.join("blobs")).unwrap().flatten();
        blobs.map(|blob| blob.metadata().unwrap().len()).sum::<u64>()
    };
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "first"));
    let first = size();
    fleet.scene.write("migrations/0002.sql", "CREATE TABLE more (id int);");
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "second"));
    let second = size() - first;
    assert!(second * 4 < first, "{second} after {first}");
    assert!(assert_right(&finish(fleet.reader("reader", &running, &ask())), "fetched"));
    // "gc" removes the first template, but not the parts that the second template shares with it.
    let gc = ["template", "gc", "--remote", "--older-than", "0s"];
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(48);
    for kind in ["blobs", "heads"] {
        for file in fs::read_dir(running.folder.join(kind)).unwrap().flatten() {
            let second = file.file_name().to_str() == Some(&fleet.fingerprint());
            if !second {
                fs::File::open(file.path()).unwrap().set_modified(old).unwrap();
            }
        }
    }
    let day = ["template", "gc", "--remote", "--older-than", "1d"];
    let outcome = finish(fleet.reader("reader", &running, &day));
    assert!(outcome.stdout.contains("removed 1 template,"), "{outcome}");
    assert!(assert_right(&finish(fleet.reader("another", &running, &ask())), "after gc"));
    assert_eq!(finish(fleet.reader("reader", &running, &gc)).code, Some(0));
    // When no template needs the parts, "gc" removes all parts of that age.
    let outcome = finish(fleet.reader("reader", &running, &gc));
    assert_eq!((outcome.code, size()), (Some(0), 0), "{outcome}");
}

#[test]
fn foreign_files_among_heads_are_ignored() {
    let fleet = Fleet::new();
    let running = Store::File.start(&fleet.scene);
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "build"));
    let other = running.folder.join("heads").join("0".repeat(64));
    fs::write(&other, "no head").unwrap();
    let gc =
        |age| finish(fleet.pusher("third", &running, &["template", "gc", "--remote", "--older-than", age]));
    let outcome = gc("1d");
    assert!(outcome.code == Some(0) && outcome.stdout.contains("removed 0 templates"), "{outcome}");
    assert!(assert_right(&finish(fleet.reader("reader", &running, &ask())), "after gc"));
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(48);
    fs::File::open(&other).unwrap().set_modified(old).unwrap();
    let outcome = gc("1d");
    assert!(outcome.code == Some(0) && outcome.stdout.contains("removed 1 template,"), "{outcome}");
    assert!(!other.exists());
}

#[test]
fn cached_templates_need_no_remote() {
    let fleet = Fleet::new();
    let running = Store::Http.start(&fleet.scene);
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "build"));
    let proxy = Proxy::start(running.port.unwrap(), Fault::None);
    let (url, variables) = running.through(proxy.port);
    let through = |machine: &str| finish(fleet.pgfresh(machine, &url, &variables, &ask()));
    assert!(assert_right(&through("reader"), "miss"));
    let asked = proxy.connections();
    assert!(asked > 0);
    for machine in ["reader", "builder"] {
        assert!(!assert_right(&through(machine), "hit"));
    }
    let bare = fleet.pgfresh("reader", &url, &variables, &["run", "--template", "none", "--", "true"]);
    assert_eq!(finish(bare).code, Some(0));
    assert_eq!(proxy.connections(), asked, "a hit has asked the remote");
}

#[test]
fn only_the_branch_that_is_named_pushes() {
    let fleet = Fleet::new();
    let running = Store::File.start(&fleet.scene);
    let heads = |folder: &Path| fs::read_dir(folder.join("heads")).map_or(0, Iterator::count);
    let push = |machine: &str, variables: &[(&str, &str)]| {
        let mut command = fleet.pusher(machine, &running, &ask());
        command.env("PGFRESH_CACHE_PUSH", "main").envs(variables.iter().copied());
        assert!(!assert_right(&finish(command), machine));
        heads(&running.folder)
    };
    assert_eq!(push("laptop", &[]), 0);
    let proposed = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_EVENT_NAME", "pull_request_target"),
        ("GITHUB_REF_TYPE", "branch"),
        ("GITHUB_REF_NAME", "main"),
    ];
    assert_eq!(push("proposed", &proposed), 0);
    assert_eq!(push("main", &[("GITLAB_CI", "true"), ("CI_COMMIT_BRANCH", "main")]), 1);
    // Verbose output contains the reason.
    let feature = [("GITLAB_CI", "true"), ("CI_COMMIT_BRANCH", "feature")];
    let nowhere = "no CI system names the current branch";
    for (push, variables, verbose, why) in [
        ("main", &feature[..], true, Some("\"main\" pushes, and this is \"feature\"")),
        ("alway", &[], true, Some(&*format!("\"alway\" pushes, and {nowhere}"))),
        ("main", &feature, false, None),
        ("never", &feature, true, None),
    ] {
        let words: &[&str] = if verbose { &["run", "-v", "--", "true"] } else { &["run", "--", "true"] };
        let mut command = fleet.pusher("laptop", &running, words);
        command.env("PGFRESH_CACHE_PUSH", push).envs(variables.iter().copied());
        let outcome = finish(command);
        let lines = outcome.stderr.lines().filter(|line| line.contains("nothing is pushed"));
        let said = why.map(|why| {
            format!("pgfresh: nothing is pushed to {} after a build: only the branch {why}", running.writes)
        });
        assert_eq!(lines.collect::<Vec<_>>(), Vec::from_iter(said.as_deref()), "{push}: {outcome}");
    }
    // Without the key, pgfresh doesn't push anything, and the command succeeds.
    fs::remove_dir_all(running.folder.join("heads")).unwrap();
    let mut command = fleet.reader("keyless", &running, &ask());
    command.env("PGFRESH_CACHE_PUSH", "always");
    assert!(!assert_right(&finish(command), "keyless"));
    assert_eq!(heads(&running.folder), 0);
}

/// If pgfresh created the directory on a machine without the mount, each machine would push to a local disk.
#[test]
fn missing_directories_are_reported_not_created() {
    let fleet = Fleet::new();
    let running = Store::File.start(&fleet.scene);
    fs::remove_dir(&running.folder).unwrap();
    let said = format!(
        "{}: could not open the store: the directory does not exist: mount or create it",
        running.writes
    );
    for command in [fleet.reader("reader", &running, &ask()), fleet.pusher("builder", &running, &ask())] {
        let outcome = finish(command);
        assert!(!assert_right(&outcome, "run"));
        assert!(warnings(&outcome).concat().ends_with(&format!(" is built here: {said}")), "{outcome}");
    }
    let builds = fleet.builds();
    for (words, what) in [(["template", "push"], "push to"), (["template", "pull"], "pull from")] {
        let outcome = finish(fleet.pusher("third", &running, &words));
        assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(1), 1), "{outcome}");
        assert!(outcome.stderr.contains(&format!("could not {what} {said}")), "{outcome}");
    }
    assert!(!running.folder.exists() && fleet.builds() == builds);
}

#[test]
fn ci_output_names_missing_remote_settings() {
    let fleet = Fleet::new();
    let url = "file:///srv/templates";
    let untrusted = format!("no key is trusted, so pgfresh run rejects all templates from {url}");
    let (mounted, unused) =
        (format!("# - {url}: mount the directory on each runner, "), "and the remote stays empty");
    let said = |keys: &str| {
        let mut command = fleet.pgfresh("any", url, &[], &["ci", "github"]);
        let outcome = finish({
            command.env("PGFRESH_CACHE_KEYS", keys);
            command
        });
        let header: Vec<_> = outcome.stdout.lines().take_while(|line| line.starts_with('#')).collect();
        [&*untrusted, &*mounted, unused].map(|what| header.iter().filter(|line| line.contains(what)).count())
    };
    assert_eq!((said(&fleet.public), said("")), ([0, 1, 0], [1, 1, 0]));
    fleet.scene.write("pgfresh.toml", "");
    assert_eq!((said(&fleet.public), said("")), ([0, 0, 1], [1, 0, 1]));
}

#[test]
fn invalid_remote_settings_give_one_line() {
    let fleet = Fleet::new();
    let refused = |url: &str, words: &[&str], keys: &str, said: &str| {
        let mut command = fleet.pgfresh("any", url, &[], words);
        command.env("PGFRESH_CACHE_KEYS", keys);
        let outcome = finish(command);
        assert!(outcome.code != Some(0) && outcome.stderr.contains(said), "{url} {words:?}: {outcome}");
        assert!(!outcome.stderr.contains("hidden") && outcome.stderr.lines().count() <= 2, "{outcome}");
    };
    for url in
        ["bucket", "s3:/x", "s3://a:hidden@b", "az://c?sig=hidden", "http://cache.example/x", "oci://host"]
    {
        refused(url, &ask(), &fleet.public, "cannot use the remote template cache: expected ");
    }
    refused("file:///nowhere", &ask(), "", "no key is trusted");
    refused("file:///nowhere", &["template", "push"], "", "no signing key is configured");
    refused("", &["template", "pull"], &fleet.public, "there is no remote template cache");
    let url = "https://me:hidden@cache.example/x";
    refused("", &["template", "list", "--cache-remote", url], &fleet.public, "is on the command line");
    refused("", &["template", "pull", url], &fleet.public, "is on the command line");
    fleet.scene.write("pgfresh.toml", &format!("{CONFIG}[cache]\nremote = \"{url}\"\n"));
    let mut command = fleet.scene.pgfresh(["template", "pull"]);
    command.env_remove("PGFRESH_CACHE_REMOTE");
    let outcome = finish(command);
    assert!(outcome.stderr.contains("is in pgfresh.toml") && !outcome.stderr.contains("hidden"), "{outcome}");
}
