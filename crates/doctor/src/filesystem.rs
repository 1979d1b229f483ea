//! Examines the file system that contains a path.
//!
//! The file system determines how fast pgfresh can copy a template: for example, copies may share blocks with the
//! original. This module determines the file system's type, options and free space.

use std::fs::File;
use std::path::Path;

use report::{Cell, Layer, Quantity, Unit, as_f64};
use storage::{Attempt, FileError};
use sys::{Directory, Filesystem, Mount};

/// Default size of `/dev/shm` in a container, in bytes. Source: Docker, `--shm-size`.
pub(crate) const CONTAINER_SHM: u64 = 64 << 20;

/// The properties of a file system.
#[derive(Debug, Clone)]
pub(crate) struct FilesystemInfo {
    pub(crate) mount: Mount,
    pub(crate) here: Filesystem,
    /// Whether files can share blocks. `None` if the attempt failed for another reason.
    pub(crate) reflinks: Option<bool>,
    /// The file system of `/dev/shm`, if it is a tmpfs.
    pub(crate) shm: Option<Filesystem>,
    /// Memory still available to this process and its children, in bytes.
    pub(crate) memory: Option<u64>,
}

impl FilesystemInfo {
    /// Examines the file system of `folder`, where it creates two small files and removes them again.
    pub(crate) fn examine(folder: &Path, mount: Mount) -> Result<Self, FileError> {
        let here = Filesystem::of(folder).attempt("examine", folder)?;
        let shm =
            Filesystem::of(Path::new("/dev/shm")).ok().filter(|shm| shm.kind == sys::FilesystemKind::Memory);
        let memory = sys::available_memory(Path::new("/")).ok();
        Ok(Self { mount, here, reflinks: try_reflink(folder), shm, memory })
    }

    /// Returns true if `/dev/shm` is no larger than the default in a container.
    pub(crate) fn has_small_shm(&self) -> bool {
        self.shm.is_some_and(|shm| shm.total <= CONTAINER_SHM)
    }

    pub(crate) fn layer(&self) -> Layer {
        let Mount { kind, point, options, super_options, .. } = &self.mount;
        let sharing = match self.reflinks {
            Some(true) => "which shares blocks between copies",
            Some(false) => "which copies every byte (no reflinks)",
            None => "where copying could not be tried",
        };
        let verdict = format!("{kind} at \"{}\", {sharing}.", point.display());
        let mut layer = Layer::new("File system", verdict);
        let bytes = |bytes: u64| Quantity::new(as_f64(bytes), Unit::Bytes);
        layer.add_fact("free", limit_cell(self.here.free));
        // All options of the mount and the file system, without duplicates.
        let mut all: Vec<&str> = options.split(',').collect();
        all.extend(
            super_options.split(',').filter(|option| !options.split(',').any(|other| other == *option)),
        );
        all.retain(|option| !option.is_empty() && !is_hidden_option(option));
        layer.add_fact("options", all.join(","));
        layer.add_fact("/dev/shm", self.shm.map(|shm| limit_cell(shm.free)));
        layer.add_fact("memory left", self.memory.map(bytes));
        layer
    }
}

/// Returns true if reports should hide the option. An overlay's directories are long and don't help the reader.
fn is_hidden_option(option: &str) -> bool {
    ["lowerdir=", "upperdir=", "workdir=", "lowerdir+="].iter().any(|prefix| option.starts_with(prefix))
}

fn limit_cell(bytes: u64) -> Cell {
    if bytes == u64::MAX {
        "without a bound".into()
    } else {
        Quantity::new(as_f64(bytes), Unit::Bytes).into()
    }
}

/// Tries to clone a small file. Returns true if this worked, false if the file system doesn't support it, and `None`
/// after any other error.
#[expect(
    clippy::let_underscore_must_use,
    reason = "what is not there need not be removed; the whole folder goes later"
)]
fn try_reflink(folder: &Path) -> Option<bool> {
    let (from, to) = (folder.join("reflink-from"), "reflink-to");
    std::fs::write(&from, [7; 4096]).ok()?;
    let cloned = File::open(&from).and_then(|source| Directory::open(folder)?.clone_file(to, &source));
    for path in [from, folder.join(to)] {
        let _ = std::fs::remove_file(path);
    }
    Some(cloned.ok()?.is_some())
}
