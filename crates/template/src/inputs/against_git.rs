//! Compares pgfresh's searches in generated folders with the files that git itself lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;

use super::expand;

/// An item in a generated folder.
#[derive(Debug, Clone)]
enum Item {
    File,
    /// A file that git tracks even if a rule ignores it.
    Tracked,
    /// A `.gitignore` file with these lines.
    Ignore(Vec<String>),
    Repository,
    Submodule,
    Worktree,
}

fn folder() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]{1,2}", 0..4).prop_map(|parts| parts.join("/"))
}

fn rule() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a",
        "b",
        "x",
        "y",
        ".sql",
        "*",
        "*",
        "**",
        "/",
        "/",
        "**/",
        "/**",
        "?",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-x]",
        "[]x]",
        "[[:alpha:]]",
        "[x",
        "{a,b}",
        " ",
        "\\ ",
        "\\x",
        "\\",
        "#",
        "!",
    ]);
    let body = prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat());
    (
        prop::sample::select(vec!["", "", "", "!", "/", "!/"]),
        body,
        prop::sample::select(vec!["", "", "/", " ", "\r"]),
    )
        .prop_map(|(before, body, after)| format!("{before}{body}{after}"))
}

fn items() -> impl Strategy<Value = Vec<(String, Item)>> {
    let rules = || prop::collection::vec(rule(), 1..4).prop_map(Item::Ignore);
    let file = || {
        let file = (folder(), "[abxy]{1,2}(\\.sql| )?");
        file.prop_map(|(folder, name)| format!("{folder}/{name}").trim_start_matches('/').to_owned())
    };
    let item = prop_oneof![
        8 => (file(), Just(Item::File)),
        2 => (file(), Just(Item::Tracked)),
        6 => (folder(), rules()),
        1 => (folder(), Just(Item::Repository)),
        1 => (folder(), Just(Item::Submodule)),
        1 => (folder(), Just(Item::Worktree)),
    ];
    prop::collection::vec(item, 5..30)
}

/// A scratch folder with the project in `home/project`.
struct Scratch {
    folder: tempfile::TempDir,
    /// Version of the index files, and format of the object names.
    options: (u32, &'static str),
}

impl Scratch {
    fn git(&self, folder: &Path, words: &[&str]) -> (bool, Vec<u8>) {
        let mut command = Command::new("git");
        // git sets these variables when it runs hooks.
        for name in [
            "DIR",
            "INDEX_FILE",
            "WORK_TREE",
            "COMMON_DIR",
            "OBJECT_DIRECTORY",
            "CONFIG_PARAMETERS",
            "CONFIG_COUNT",
        ] {
            command.env_remove(format!("GIT_{name}"));
        }
        command
            .env("HOME", self.folder.path())
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "x").env(format!("GIT_{who}_EMAIL"), "x");
        }
        let index = format!("index.version={}", self.options.0);
        let output = command.args(["-c", &index]).args(words).current_dir(folder).output().unwrap();
        (output.status.success(), output.stdout)
    }

    fn initialize(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        let format = format!("--object-format={}", self.options.1);
        assert!(self.git(folder, &["init", "-q", "--template=", &format]).0);
        assert!(self.git(folder, &["commit", "-q", "--allow-empty", "-m", "x"]).0);
    }

    /// Creates the items below `project`. Items that an earlier item makes impossible are skipped.
    fn create_items(&self, project: &Path, items: &[(String, Item)]) {
        let mut ordered: Vec<_> = items.iter().collect();
        ordered.sort_by_key(|(path, item)| {
            let is_root = matches!(item, Item::Repository | Item::Submodule | Item::Worktree);
            (!is_root, matches!(item, Item::Tracked), if is_root { path.matches('/').count() } else { 0 })
        });
        let mut submodules = Vec::new();
        for (number, (path, item)) in ordered.into_iter().enumerate() {
            let path = project.join(path);
            let (parent, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap());
            let is_free = !path.join(".git").exists();
            match item {
                Item::Repository if is_free => self.initialize(&path),
                Item::Worktree if is_free => {
                    fs::create_dir_all(parent).unwrap();
                    assert!(self.git(parent, &["worktree", "add", "-q", "--detach", name]).0);
                }
                Item::Submodule if is_free => {
                    self.initialize(&path);
                    let git = self.folder.path().join(number.to_string());
                    fs::rename(path.join(".git"), &git).unwrap();
                    fs::write(path.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
                    submodules.push(path);
                }
                Item::Ignore(rules) if fs::create_dir_all(&path).is_ok() => {
                    fs::write(path.join(".gitignore"), rules.join("\n")).unwrap();
                }
                Item::File | Item::Tracked if fs::create_dir_all(parent).is_ok() && !path.is_dir() => {
                    fs::write(&path, "").unwrap();
                    let tracked = matches!(item, Item::Tracked);
                    assert!(!tracked || self.git(parent, &["add", "-f", "--", name]).0, "{}", path.display());
                }
                _ => {}
            }
        }
        for path in submodules {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(self.git(path.parent().unwrap(), &["add", "-f", name]).0);
        }
    }

    /// Lists the files in `folder` that git tracks or would list as untracked, including those of nested repositories.
    fn listed(&self, folder: &Path) -> BTreeSet<PathBuf> {
        let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let (success, paths) = self.git(folder, &words);
        assert!(success);
        let paths = paths.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let paths = paths.map(|path| folder.join(std::str::from_utf8(path).unwrap()));
        paths.flat_map(|path| if path.is_dir() { self.listed(&path) } else { [path].into() }).collect()
    }
}

/// Returns the paths below `folder` without hidden parts.
fn visible(paths: BTreeSet<PathBuf>, folder: &Path) -> BTreeSet<String> {
    let paths = paths.into_iter().map(|path| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
    paths.filter(|path| !path.split('/').any(|part| part.starts_with('.'))).collect()
}

fn searched(folder: &Path, pattern: &str) -> BTreeSet<String> {
    expand(folder, &[pattern.to_owned()]).map(|found| found.files.into_iter().collect()).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn search_finds_files_that_git_lists(
        home in prop::collection::vec(rule(), 1..4),
        home_is_repository: bool,
        items in items(),
        options in (2..5_u32, prop::sample::select(vec!["sha1", "sha256"])),
        start in "[ab]",
    ) {
        let world = Scratch { folder: tempfile::tempdir().unwrap(), options };
        let home_folder = world.folder.path().canonicalize().unwrap().join("home");
        let project = home_folder.join("project");
        fs::create_dir_all(&project).unwrap();
        if home_is_repository {
            world.initialize(&home_folder);
        }
        fs::write(home_folder.join(".gitignore"), home.join("\n")).unwrap();
        world.initialize(&project);
        world.create_items(&project, &items);
        prop_assert_eq!(searched(&project, "**"), visible(world.listed(&project), &project));
        // Also search from a folder further down, unless git ignores that folder.
        let folder = project.join(&start);
        if folder.is_dir() && (folder.join(".git").exists() || !world.git(&project, &["check-ignore", "-q", "--no-index", &start]).0) {
            let listed = visible(world.listed(&folder), &folder);
            prop_assert_eq!(searched(&folder, "**"), listed.clone());
            let listed: BTreeSet<_> = listed.iter().map(|path| format!("{start}/{path}")).collect();
            prop_assert_eq!(searched(&project, &start), listed);
        }
    }
}
