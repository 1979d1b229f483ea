//! Detects programs that have a `migrate` subcommand, such as `go run . migrate`.

use super::jvm::root_changelog;
use super::{Migrations, below, escaped, has_extension, parent, patterns};
use crate::project::folder::Folder;

/// Text in the source of a program that has the subcommand.
const SUBCOMMAND: &str = "\"migrate\"";

pub(super) fn go(folder: &Folder) -> Option<Migrations> {
    if !folder.has("go.mod") || !folder.text("main.go").contains(SUBCOMMAND) {
        return None;
    }
    let mut inputs: Vec<_> =
        sql_folders(folder).iter().map(|folder| format!("{}/*.sql", escaped(folder))).collect();
    inputs.extend(patterns(["*.go", "go.mod", "go.sum"]));
    Some(Migrations::command("its own command", "main.go", "go run . migrate", inputs))
}

pub(super) fn rust(folder: &Folder) -> Option<Migrations> {
    if !folder.has("Cargo.toml") || !folder.text("src/main.rs").contains(SUBCOMMAND) {
        return None;
    }
    let locked = if folder.has("Cargo.lock") { " --locked" } else { "" };
    let mut inputs: Vec<_> =
        sql_folders(folder).iter().map(|folder| format!("{}/*.sql", escaped(folder))).collect();
    inputs.extend(patterns(["src/main.rs"]));
    let setup = format!("cargo run --quiet{locked} -- migrate");
    Some(Migrations::command("its own command", "src/main.rs", setup, inputs))
}

/// Detects Maven's exec plugin if it runs a class that migrates.
pub(super) fn maven(folder: &Folder) -> Option<Migrations> {
    let pom = folder.text("pom.xml");
    let (_, rest) = pom.split_once("<mainClass>")?;
    let class = rest.split('<').next()?.trim();
    if !pom.contains("exec-maven-plugin") || !class.rsplit('.').next()?.starts_with("Migrat") {
        return None;
    }
    let maven = if folder.has("mvnw") { "./mvnw" } else { "mvn" };
    let mut inputs: Vec<_> =
        sql_folders(folder).iter().map(|folder| format!("{}/*.sql", escaped(folder))).collect();
    inputs.extend(root_changelog(folder).map(|changelog| below(parent(changelog))));
    inputs.push(format!("src/main/java/{}.java", class.replace('.', "/")));
    Some(Migrations::command(
        "its own command",
        "pom.xml",
        format!("{maven} -q -B compile exec:java"),
        inputs,
    ))
}

/// Returns the folders whose names indicate that their SQL files are migrations.
fn sql_folders(folder: &Folder) -> Vec<&str> {
    let sql = folder.files().iter().filter(|file| has_extension(file, "sql")).map(|file| parent(file));
    let mut folders: Vec<_> = sql.filter(|folder| folder.contains("migration")).collect();
    folders.dedup();
    folders
}
