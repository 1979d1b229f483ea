//! Recognizes PostgreSQL images, and determines their major version and the extensions they add.

/// Words in the names of images that contain a PostgreSQL server.
const SERVERS: [&str; 13] = [
    "postgres",
    "postgresql",
    "postgis",
    "pgvector",
    "timescaledb",
    "citus",
    "age",
    "paradedb",
    "pgvecto",
    "vchord",
    "spilo",
    "pgautoupgrade",
    "pgroonga",
];
/// Words in the names of images that only contain a client or a tool for PostgreSQL.
const TOOLS: [&str; 13] = [
    "exporter", "backup", "backups", "operator", "admin", "meta", "s3", "client", "dump", "proxy", "pooler",
    "mcp", "ui",
];

/// An extension that an image adds to PostgreSQL's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownExtension {
    word: &'static str,
    pub(crate) name: &'static str,
    /// Whether the image itself creates the extension in the database.
    pub(crate) is_created: bool,
    /// Whether the extension must be in `shared_preload_libraries`.
    pub(crate) is_preloaded: bool,
    /// Name of the Debian package without the major version. `None` if there is no package.
    pub(crate) package: Option<&'static str>,
}

const fn extension(word: &'static str, name: &'static str, is_created: bool) -> KnownExtension {
    KnownExtension { word, name, is_created, is_preloaded: false, package: None }
}

const EXTENSIONS: [KnownExtension; 8] = [
    KnownExtension { package: Some("postgis-3"), ..extension("postgis", "postgis", true) },
    KnownExtension { package: Some("pgvector"), ..extension("pgvector", "vector", false) },
    KnownExtension { is_preloaded: true, ..extension("timescaledb", "timescaledb", true) },
    KnownExtension { is_preloaded: true, ..extension("citus", "citus", true) },
    KnownExtension { package: Some("age"), ..extension("age", "age", true) },
    extension("paradedb", "pg_search", false),
    KnownExtension { is_preloaded: true, ..extension("vchord", "vchord", false) },
    extension("pgroonga", "pgroonga", false),
];

/// An image with a PostgreSQL server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Name and tag, as written in the file.
    pub(crate) reference: String,
    /// Major version, if the tag names one.
    pub(crate) major: Option<u32>,
    pub(crate) extensions: Vec<&'static KnownExtension>,
}

impl Image {
    /// Returns the image if its name indicates a PostgreSQL server.
    pub(super) fn of_postgres(reference: &str) -> Option<Self> {
        let plain = reference.split('@').next().unwrap_or_default().trim();
        let path = plain.rsplit('/').next().unwrap_or_default();
        let (name, tag) = path.split_once(':').unwrap_or((path, ""));
        let words: Vec<_> = name.split(['-', '_', '.']).map(str::to_ascii_lowercase).collect();
        let has = |all: &[&str]| words.iter().any(|word| all.contains(&word.as_str()));
        if !has(&SERVERS) || has(&TOOLS) {
            return None;
        }
        let extensions =
            EXTENSIONS.iter().filter(|extension| words.iter().any(|word| word == extension.word));
        // These images have their own version numbers, so only a number after "pg" is a PostgreSQL version.
        let has_own_versions =
            has(&["pgvector", "timescaledb", "citus", "age", "paradedb", "pgvecto", "vchord", "pgroonga"]);
        let major = major_after_pg(tag).or_else(|| if has_own_versions { None } else { leading_major(tag) });
        Some(Self { reference: reference.to_owned(), major, extensions: extensions.collect() })
    }
}

/// Returns the number after `pg` or `postgres` in a tag such as `0.8.0-pg17`.
fn major_after_pg(tag: &str) -> Option<u32> {
    let tag = tag.to_ascii_lowercase();
    let mut parts = tag.split(['-', '_', '.']);
    while let Some(part) = parts.next() {
        let Some(at) = part.rfind("pg").map(|at| at + 2).or_else(|| part.strip_prefix("postgres").map(|_| 8))
        else {
            continue;
        };
        let number = &part[at..];
        let digits = if number.is_empty() { parts.next().unwrap_or_default() } else { number };
        if let Some(major) = plausible(digits) {
            return Some(major);
        }
    }
    None
}

/// Returns the first number in a tag such as `16.4-alpine` or `ubi8-16.4-0`.
fn leading_major(tag: &str) -> Option<u32> {
    tag.split(['-', '_']).find_map(|part| {
        let part = part.strip_prefix(['v', 'V']).unwrap_or(part);
        plausible(part.split('.').next().unwrap_or_default())
    })
}

fn plausible(digits: &str) -> Option<u32> {
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|major| (9..100).contains(major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_of_every_kind_of_image_gives_major() {
        for (reference, major) in [
            ("postgres", None),
            ("postgres:latest", None),
            ("postgres:16", Some(16)),
            ("docker.io/library/postgres:16.4-alpine3.20@sha256:00ff", Some(16)),
            ("registry.example:5000/team/postgres:15.6", Some(15)),
            ("postgis/postgis:16-3.4", Some(16)),
            ("imresamu/postgis:17-3.5-alpine", Some(17)),
            ("pgvector/pgvector:pg17", Some(17)),
            ("pgvector/pgvector:0.8.0-pg16-bookworm", Some(16)),
            ("ankane/pgvector:v0.5.1", None),
            ("timescale/timescaledb:2.14.2-pg16", Some(16)),
            ("timescale/timescaledb:latest-pg15", Some(15)),
            ("timescale/timescaledb-ha:pg16.2-ts2.14.2", Some(16)),
            ("citusdata/citus:12.1", None),
            ("citusdata/citus:postgres_15", Some(15)),
            ("apache/age:release_PG16_1.5.0", Some(16)),
            ("bitnami/postgresql:16.3.0-debian-12-r1", Some(16)),
            ("supabase/postgres:15.1.0.117", Some(15)),
            ("cimg/postgres:14.10-postgis", Some(14)),
            ("crunchydata/crunchy-postgres:ubi8-16.1-0", Some(16)),
            ("postgres:9.6", Some(9)),
            ("pgautoupgrade/pgautoupgrade:17-alpine", Some(17)),
            ("postgres:", None),
        ] {
            let image = Image::of_postgres(reference).unwrap_or_else(|| panic!("{reference}"));
            assert_eq!(image.major, major, "{reference}");
        }
    }

    #[test]
    fn other_images_are_no_servers() {
        for reference in [
            "redis:7",
            "postgrest/postgrest:v12",
            "dpage/pgadmin4",
            "prometheuscommunity/postgres-exporter",
            "prodrigestivill/postgres-backup-local:16",
            "edoburu/pgbouncer:1.20",
            "supabase/postgres-meta:v0.8",
            "mysql:8",
            "",
        ] {
            assert_eq!(Image::of_postgres(reference), None, "{reference}");
        }
    }

    #[test]
    fn extension_follows_from_name_of_image() {
        let names = |reference: &str| -> Vec<_> {
            Image::of_postgres(reference).unwrap().extensions.iter().map(|extension| extension.name).collect()
        };
        assert_eq!(names("postgis/postgis:16-3.4"), ["postgis"]);
        assert_eq!(names("timescale/timescaledb-ha:pg16"), ["timescaledb"]);
        assert_eq!(names("pgvector/pgvector:pg16"), ["vector"]);
        assert_eq!(names("postgres:16"), [""; 0]);
    }
}
