//! Detects Flyway and Liquibase.

use super::sql::in_order;
use super::{Migrations, below, escaped, has_extension, name, parent, patterns, word};
use crate::project::folder::Folder;

/// JDBC URL, built from a setup's environment variables.
const URL: &str = "\"jdbc:postgresql://$PGHOST:$PGPORT/$PGDATABASE\"";

pub(super) fn flyway(folder: &Folder) -> Option<Migrations> {
    let migrations: Vec<_> = folder.files().iter().filter(|file| is_versioned(file)).collect();
    let places = || {
        let mut places: Vec<_> = migrations.iter().map(|file| below(parent(file))).collect();
        places.sort();
        places.dedup();
        places
    };
    if let Some(file) =
        folder.first_of(&["flyway.toml", "flyway.conf", "conf/flyway.conf", "conf/flyway.toml"])
    {
        let option = if file.starts_with("conf/") { format!(" -configFiles={file}") } else { String::new() };
        let setup = format!("flyway{option} -url={URL} -user=\"$PGUSER\" -password=\"$PGPASSWORD\" migrate");
        let inputs = places().into_iter().chain([file.to_owned()]).collect();
        return Some(Migrations::command("Flyway", file, setup, inputs));
    }
    let first = migrations.first()?;
    if folder.text("pom.xml").contains("flyway-maven-plugin") {
        let maven = if folder.has("mvnw") { "./mvnw" } else { "mvn" };
        let setup = format!(
            "{maven} -q -B process-resources flyway:migrate -Dflyway.url={URL} -Dflyway.user=\"$PGUSER\" -Dflyway.password=\"$PGPASSWORD\""
        );
        let inputs = places().into_iter().chain(patterns(["pom.xml"])).collect();
        return Some(Migrations::command("Flyway", "pom.xml", setup, inputs));
    }
    let build = folder.first_of(&["build.gradle.kts", "build.gradle"]);
    if let Some(build) = build.filter(|build| folder.text(build).contains("org.flywaydb.flyway")) {
        let gradle = if folder.has("gradlew") { "./gradlew" } else { "gradle" };
        let setup = format!(
            "{gradle} -q --no-daemon flywayMigrate -Pflyway.url={URL} -Pflyway.user=\"$PGUSER\" -Pflyway.password=\"$PGPASSWORD\""
        );
        let inputs = places().into_iter().chain(patterns([build])).collect();
        return Some(Migrations::command("Flyway", build, setup, inputs));
    }
    // Without the Flyway program, pgfresh runs the SQL files itself.
    let folder_of_first = parent(first);
    let here: Vec<_> =
        migrations.iter().filter(|file| parent(file) == folder_of_first).map(|file| file.as_str()).collect();
    let note =
        "Switch Flyway off in tests (spring.flyway.enabled=false): the template has no table of Flyway."
            .to_owned();
    let mut files = in_order(folder_of_first, "V*.sql", &here);
    // Flyway runs repeatable migrations last. `detect` omits the pattern if it matches nothing.
    let place = if folder_of_first.is_empty() { String::new() } else { escaped(folder_of_first) + "/" };
    files.push(format!("{place}R__*.sql"));
    Some(Migrations::sql("Flyway", first, files).note(note))
}

/// Returns true for a name such as `V1_2__orders.sql`.
fn is_versioned(file: &str) -> bool {
    let version = name(file).strip_prefix('V').and_then(|rest| rest.split_once("__"));
    has_extension(file, "sql")
        && version.is_some_and(|(version, _)| {
            !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || ['.', '_'].contains(&c))
        })
}

pub(super) fn liquibase(folder: &Folder) -> Option<Migrations> {
    let properties = folder.text("liquibase.properties");
    let named = properties
        .lines()
        .filter_map(|line| line.split_once(['=', ':']))
        .find(|(key, _)| key.trim().to_ascii_lowercase().replace(['-', '.'], "").ends_with("changelogfile"));
    let named = named.map(|(_, file)| file.trim().to_owned());
    let changelog =
        named.filter(|file| folder.has(file)).or_else(|| Some(root_changelog(folder)?.to_owned()))?;
    // Liquibase finds a changelog on the class path by its path there.
    let resources = "src/main/resources/";
    let (search, file) = match changelog.strip_prefix(resources) {
        Some(rest) => (" --search-path=src/main/resources", rest),
        None => ("", changelog.as_str()),
    };
    let mut inputs =
        vec![if parent(&changelog).is_empty() { changelog.clone() } else { below(parent(&changelog)) }];
    inputs.extend(patterns(["liquibase.properties"]));
    if folder.text("pom.xml").contains("liquibase-maven-plugin") {
        let maven = if folder.has("mvnw") { "./mvnw" } else { "mvn" };
        let setup = format!(
            "{maven} -q -B process-resources liquibase:update -Dliquibase.url={URL} -Dliquibase.username=\"$PGUSER\" -Dliquibase.password=\"$PGPASSWORD\" -Dliquibase.changeLogFile={}",
            word(file)
        );
        inputs.extend(patterns(["pom.xml"]));
        return Some(Migrations::command("Liquibase", "pom.xml", setup, inputs));
    }
    let setup = format!(
        "liquibase{search} --changelog-file={} --url={URL} --username=\"$PGUSER\" --password=\"$PGPASSWORD\" update",
        word(file)
    );
    Some(Migrations::command("Liquibase", &changelog, setup, inputs))
}

/// Returns the changelog that includes the others, identified by its usual names.
pub(super) fn root_changelog(folder: &Folder) -> Option<&str> {
    let changelogs = folder.files().iter().filter(|file| is_changelog(file));
    let root = changelogs.min_by_key(|file| (!name(file).contains("master"), !name(file).contains("root")));
    root.map(String::as_str)
}

/// Returns true for a name such as `db.changelog-master.yaml`.
fn is_changelog(file: &str) -> bool {
    let name = name(file).to_ascii_lowercase();
    let extension =
        [".xml", ".yaml", ".yml", ".json", ".sql"].iter().any(|extension| name.ends_with(extension));
    extension
        && (name.starts_with("db.changelog") || name.starts_with("changelog") || name == "root-changelog.xml")
}
