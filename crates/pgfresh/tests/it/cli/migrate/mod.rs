//! Tests `pgfresh migrate`: migrations run on an older revision's template, and don't leave traces in the repository.

mod base;
mod check;
mod compare;
mod image;
mod odd_tools;
mod old_code;
mod roundtrip;
mod suite;

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Outcome, Scene, User, finish};

/// Each project's first migration.
const ORDERS: &str = "CREATE TABLE orders (id int PRIMARY KEY, status text); INSERT INTO orders SELECT n, 'new' FROM generate_series(1, 100) n;";

/// Git repository whose branch "main" has one migration. The current branch is "feature".
struct Project {
    scene: Scene,
}

impl Project {
    fn new() -> Self {
        Self::with("[template]\nsql = \"migrations/*.sql\"\n")
    }

    /// Makes a project with the configuration file `config`.
    fn with(config: &str) -> Self {
        Self::of(&[("pgfresh.toml", config), ("migrations/0001_orders.sql", ORDERS)], |_| ())
    }

    /// Makes a project with these files. Calls `change` before it commits them.
    fn of(files: &[(&str, &str)], change: impl FnOnce(&Self)) -> Self {
        let project = Self { scene: Scene::new(User::Ourselves) };
        for (name, text) in files {
            project.write(name, text);
        }
        project.git(&["init", "--quiet", "-b", "main"]);
        change(&project);
        project.commit();
        project.git(&["checkout", "--quiet", "-b", "feature"]);
        project
    }

    fn folder(&self) -> PathBuf {
        self.scene.directory.join("project")
    }

    fn write(&self, name: &str, text: &str) {
        self.scene.write(&format!("project/{name}"), text);
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=tester", "-c", "user.email=tester@example.org"]).args(words);
        let outcome = finish_in(git, self);
        assert_eq!(outcome.code, Some(0), "{words:?} {outcome}");
        outcome.stdout
    }

    /// Commits all files.
    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "Change"]);
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.scene.pgfresh(["migrate"].iter().chain(words));
        command.env("PGFRESH_POSTGRES", "15").current_dir(self.folder());
        for name in [
            "GITHUB_BASE_REF",
            "GITHUB_ACTIONS",
            "GITHUB_STEP_SUMMARY",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `pgfresh migrate`, which must end with `code` and leave the repository unchanged.
    #[track_caller]
    fn ends(&self, words: &[&str], code: i32) -> Outcome {
        let state = || {
            let branches = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
            (branches, self.git(&["worktree", "list"]), self.git(&["status", "--short"]))
        };
        let before = state();
        let outcome = finish(self.command(words));
        assert_eq!(outcome.code, Some(code), "{words:?} {outcome}");
        assert_eq!(state(), before, "{words:?} {outcome}");
        outcome
    }

    /// Runs `pgfresh migrate`, which must fail with `message`.
    #[track_caller]
    fn fails(&self, words: &[&str], message: &str) {
        let outcome = self.ends(words, 125);
        assert!(outcome.stderr.contains(message), "{words:?}, without {message:?}: {outcome}");
    }
}

fn finish_in(mut command: Command, project: &Project) -> Outcome {
    command.current_dir(project.folder()).env("HOME", &project.scene.directory);
    finish(command)
}
