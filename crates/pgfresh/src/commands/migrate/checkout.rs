//! Creates a temporary checkout of a revision.
//!
//! The checkout is a separate repository that borrows the objects of the user's repository. Unlike a worktree, it
//! leaves no trace in the user's repository, even if pgfresh is killed. The guard, a process that outlives pgfresh,
//! removes the folder.
//!
//! git doesn't check out installed dependencies, and pgfresh can't install them for an older revision. So the checkout
//! links to the working tree's dependencies.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use server::Guard;
use storage::{Account, Attempt, Place, PlaceRequest};
use template::ProvisionError;

use super::git::{Repository, git};
use super::revision::Revision;
use crate::context::Context;
use crate::failure::Failure;

/// Names of ignored files and folders that programs need to start. Names that start with `.env` also count.
const DEPENDENCIES: [&str; 8] =
    ["node_modules", ".venv", "venv", "vendor", "deps", ".bundle", ".yarn", ".pnp.cjs"];
/// Name of the file that contains the tree hash.
const TREE: &str = "tree";
/// Options that keep git from running the user's hooks and other programs.
const QUIETLY: [&str; 4] = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];

/// A temporary checkout, which is removed when this value is dropped, and also if pgfresh is killed.
#[derive(Debug)]
pub(super) struct Checkout {
    guard: Guard,
    /// Root of the checkout, without links.
    pub(super) root: PathBuf,
}

impl Checkout {
    /// Checks out the revision into a private folder on disk.
    pub(super) fn of(
        context: &Context,
        repository: &Repository,
        revision: &Revision,
    ) -> Result<Self, Failure> {
        let account = Account::ours();
        let request = match &context.settings()?.server_options.place {
            PlaceRequest::At(path) => PlaceRequest::At(path.clone()),
            PlaceRequest::Auto | PlaceRequest::Ram | PlaceRequest::Disk => PlaceRequest::Disk,
        };
        let place = Place::choose(&request, 0, context.cache()?.root(), &account);
        let place = place.map_err(ProvisionError::from)?;
        let guard = Guard::over(&place, &account, sys::this_program())?;
        let root = guard.run().path().canonicalize().attempt("find", guard.run().path())?.join("checkout");
        DirBuilder::new().mode(0o700).create(&root).attempt("create", &root)?;
        let checkout = Self { guard, root };
        checkout.fill(repository, revision)?;
        checkout.link_dependencies(repository)?;
        Ok(checkout)
    }

    /// Converts a path in the working tree to the corresponding path in the checkout. Returns `None` for a
    /// path elsewhere.
    pub(super) fn path_of(&self, repository: &Repository, path: &Path) -> Option<PathBuf> {
        // The checkout itself may be in an ignored folder of the working tree.
        if path.starts_with(&self.root) {
            return Some(path.to_owned());
        }
        path.strip_prefix(&repository.root).ok().map(|path| self.root.join(path).components().collect())
    }

    /// Writes the hash of the checked-out tree to a file beside the checkout. Returns the file's path relative to
    /// `folder`, for use as an input of templates that depend on all files in the tree.
    pub(super) fn note_tree(&self, folder: &Path, tree: &str) -> Result<String, Failure> {
        let path = self.root.with_file_name(TREE);
        fs::write(&path, tree).attempt("write", &path)?;
        let depth = folder.strip_prefix(&self.root).map_or(0, |below| below.components().count());
        Ok(format!("{}{TREE}", "../".repeat(depth + 1)))
    }

    /// Removes the checkout and waits until it is gone.
    pub(super) fn remove(self) {
        self.guard.remove();
    }

    fn fill(&self, repository: &Repository, revision: &Revision) -> Result<(), Failure> {
        let own = self.root.join(".git");
        let format = repository.ask(["rev-parse", "--show-object-format"])?;
        let mut init = git(["init", "--quiet", "--template="]);
        // Older git versions support neither this option nor any other format, so omit the default.
        if let Some(format) = format.filter(|format| format != "sha1") {
            init.arg(format!("--object-format={format}"));
        }
        repository.expect("create a temporary repository", init.arg("--").arg(&self.root))?;
        let objects = git_path(repository, "objects")?;
        let alternates = own.join("objects/info/alternates");
        DirBuilder::new().recursive(true).create(own.join("objects/info")).attempt("create", &alternates)?;
        fs::write(&alternates, [objects.as_os_str().as_bytes(), b"\n"].concat())
            .attempt("write", &alternates)?;
        let shallow = git_path(repository, "shallow")?;
        if shallow.is_file() {
            fs::copy(&shallow, own.join("shallow")).attempt("copy", &shallow)?;
        }
        let head = own.join("HEAD");
        fs::write(&head, format!("{}\n", revision.commit)).attempt("write", &head)?;
        // Check out from the user's repository, so that its filters and its remotes for missing objects apply.
        let mut read = git(QUIETLY);
        let folder = repository.ask(["rev-parse", "--absolute-git-dir"])?.unwrap_or_default();
        read.arg(format!("--git-dir={folder}")).arg("--work-tree").arg(&self.root);
        read.args(["read-tree", "-u", "--reset", &revision.commit]).env("GIT_INDEX_FILE", own.join("index"));
        repository.expect(&format!("check out {}", revision.name), &mut read)?;
        Ok(())
    }

    /// Links to the working tree's dependencies that git ignores.
    fn link_dependencies(&self, repository: &Repository) -> Result<(), Failure> {
        let mut list = git(QUIETLY);
        list.args(["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]);
        let ignored = repository.expect("list the files that git ignores", &mut list)?;
        for path in ignored.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let (from, to) = (repository.root.join(path), self.root.join(path));
            let fits = to.parent().is_some_and(Path::is_dir) && to.symlink_metadata().is_err();
            if fits && (DEPENDENCIES.contains(&name) || name.starts_with(".env")) {
                let from: PathBuf = from.components().collect();
                let to: PathBuf = to.components().collect();
                symlink(&from, &to).attempt("link", &to)?;
            }
        }
        Ok(())
    }
}

/// Returns the path of one of git's own files.
fn git_path(repository: &Repository, name: &str) -> Result<PathBuf, Failure> {
    let path = repository.ask(["rev-parse", "--git-path", name])?.unwrap_or_default();
    Ok(repository.root.join(path))
}
