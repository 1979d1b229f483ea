//! Parses extension names and maps them to packages.

use std::str::FromStr;

use crate::package::Package;

/// Name of an extension, as in CREATE EXTENSION.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtensionName(String);

/// Error for a text that isn't a valid extension name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of an extension, such as vector or postgis")]
pub struct ParseExtensionNameError;

impl FromStr for ExtensionName {
    type Err = ParseExtensionNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        // If a package name ends with a hyphen, apt removes the package instead of installing it.
        let last = text.bytes().next_back().is_some_and(|byte| !b"_-".contains(&byte));
        (first && last && text.len() < 64 && text.bytes().all(is_letter) && !text.contains("--"))
            .then(|| Self(text.to_owned()))
            .ok_or(ParseExtensionNameError)
    }
}

impl ExtensionName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Finds the extension name in a line from `PostgreSQL` that reports a missing control file or module.
    #[must_use]
    pub fn missing_in(line: &str) -> Option<Self> {
        if let Some((before, _)) = line.split_once("\" is not available") {
            return before.rsplit_once("extension \"")?.1.parse().ok();
        }
        if let Some((_, path)) = line.split_once("could not open extension control file \"") {
            return path.split_once(".control\"")?.0.rsplit('/').next()?.parse().ok();
        }
        let (_, module) = line.split_once("could not access file \"")?;
        let (module, _) = module.split_once("\": No such file")?;
        // Since version 18, PostgreSQL omits the directory.
        let module = module.strip_prefix("$libdir/").unwrap_or(module);
        // PostGIS has its version in the module name: `postgis-3`.
        let name = module.trim_end_matches(|letter: char| letter.is_ascii_digit());
        name.strip_suffix('-').unwrap_or(module).parse().ok()
    }

    /// Returns the Debian package that contains the extension for `major`. PostgreSQL's own apt repository uses the
    /// same names.
    pub(crate) fn debian_package(&self, major: u32) -> String {
        let name = self.as_str();
        let part = match name {
            "vector" => "pgvector".to_owned(),
            "pg_cron" | "pg_partman" | "pg_repack" => name.trim_start_matches("pg_").to_owned(),
            _ if name.starts_with("postgis") || name.starts_with("address_standardizer") => {
                "postgis-3".to_owned()
            }
            _ if name.starts_with("pl") && Package::has_contrib(name) && !name.contains("_pl") => {
                return format!("postgresql-{}-{major}", name.trim_end_matches('u'));
            }
            _ if Package::has_contrib(name) => return format!("postgresql-{major}"),
            _ => name.replace('_', "-"),
        };
        format!("postgresql-{major}-{part}")
    }

    /// Returns one line with the commands that install the extension on the system, for `major`.
    pub(crate) fn system_packages(&self, major: u32) -> String {
        let (debian, formula) = (self.debian_package(major), homebrew_formula(&self.0, major));
        format!(
            "Install the extension (Debian, Ubuntu: apt install {debian}; Homebrew: brew install {formula})."
        )
    }
}

/// Returns the Homebrew formula that contains extension `name`.
fn homebrew_formula(name: &str, major: u32) -> String {
    match name {
        "vector" => "pgvector".to_owned(),
        _ if name.starts_with("postgis") => "postgis".to_owned(),
        _ if Package::has_contrib(name) => format!("postgresql@{major}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_extensions_are_found_in_messages() {
        for (line, expected) in [
            ("ERROR:  extension \"uuid-ossp\" is not available", Some("uuid-ossp")),
            (
                "psql:a.sql:1: ERROR:  could not open extension control file \"/usr/share/extension/vector.control\": No such file",
                Some("vector"),
            ),
            ("ERROR:  could not access file \"$libdir/vector\": No such file or directory", Some("vector")),
            (
                "ERROR:  could not access file \"$libdir/postgis-3\": No such file or directory",
                Some("postgis"),
            ),
            ("ERROR:  could not access file \"$libdir/xml2\": No such file or directory", Some("xml2")),
            ("ERROR:  could not access file \"$libdir/vector\": Permission denied", None),
            ("ERROR:  could not access file \"vector\": No such file or directory", Some("vector")),
            ("ERROR:  could not access file \"my/own\": No such file or directory", None),
            ("ERROR:  extension \"Bad name\" is not available", None),
            ("ERROR:  extension \"vector\" already exists", None),
            ("ERROR:  language \"plperl\" is not available", None),
        ] {
            let found = ExtensionName::missing_in(line);
            assert_eq!(found.as_ref().map(ExtensionName::as_str), expected, "{line}");
        }
    }

    #[test]
    fn names_have_no_paths_or_options() {
        for name in ["", "-c", "../x", "a/b", "Vector", "a b", "a;b", "\u{e9}", "hll-", "hll_", "a--b"] {
            assert!(name.parse::<ExtensionName>().is_err(), "{name}");
        }
        for name in ["vector", "uuid-ossp", "xml2", "pg_trgm", " pg_trgm "] {
            name.parse::<ExtensionName>().unwrap();
        }
    }

    #[test]
    fn extensions_have_debian_packages() {
        for (name, package) in [
            ("vector", "postgresql-16-pgvector"),
            ("postgis", "postgresql-16-postgis-3"),
            ("postgis_raster", "postgresql-16-postgis-3"),
            ("pg_trgm", "postgresql-16"),
            ("uuid-ossp", "postgresql-16"),
            ("plperlu", "postgresql-plperl-16"),
            ("plpython3u", "postgresql-plpython3-16"),
            ("hstore_plperl", "postgresql-16"),
            ("pg_cron", "postgresql-16-cron"),
            ("pgrouting", "postgresql-16-pgrouting"),
        ] {
            assert_eq!(name.parse::<ExtensionName>().unwrap().debian_package(16), package, "{name}");
        }
    }
}
