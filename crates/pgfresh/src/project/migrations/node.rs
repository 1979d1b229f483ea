//! Detects Prisma, Drizzle, Knex, Sequelize, node-pg-migrate, and migration scripts in `package.json`.

use super::{
    Migrations, below, escaped, has_extension, name, parent, patterns, plain_folder, quoted_after, word,
};
use crate::project::folder::Folder;
use crate::project::node_launcher;

pub(super) fn prisma(folder: &Folder) -> Option<Migrations> {
    const CONFIGURATIONS: [&str; 4] =
        ["prisma.config.ts", "prisma.config.mts", "prisma.config.js", "prisma.config.mjs"];
    let schema = folder.files().iter().find(|file| name(file) == "schema.prisma")?;
    let source = quoted_after(&folder.text(schema), "provider");
    let is_other = ["mysql", "sqlite", "sqlserver", "mongodb"]
        .iter()
        .any(|other| folder.text(schema).contains(&format!("\"{other}\"")));
    if source.is_none() || is_other {
        return None;
    }
    let top = parent(schema);
    let has_migrations = folder.files().iter().any(|file| {
        name(file) == "migration.sql"
            && file.strip_prefix(top).is_some_and(|rest| rest.contains("migrations/"))
    });
    let launcher = node_launcher(folder);
    let task = match prisma_major(folder) {
        _ if has_migrations => "migrate deploy",
        Some(..7) => "db push --skip-generate",
        // From version 7 on, `db push` generates no client and has no such option.
        _ => "db push",
    };
    let configuration = folder.first_of(&CONFIGURATIONS);
    let is_usual =
        configuration.is_some() || ["prisma/schema.prisma", "schema.prisma"].contains(&schema.as_str());
    let option = if is_usual { String::new() } else { format!(" --schema {}", word(schema)) };
    let mut inputs = vec![if top.is_empty() { schema.clone() } else { below(top) }];
    inputs.extend(configuration.map(str::to_owned));
    Some(Migrations::command("Prisma", schema, format!("{launcher}prisma {task}{option}"), inputs))
}

/// Returns Prisma's major version: the installed one, or else the one in `package.json`.
fn prisma_major(folder: &Folder) -> Option<u32> {
    let read = |file: &str| serde_json::from_str::<serde_json::Value>(&folder.text(file)).ok();
    let installed = read("node_modules/prisma/package.json");
    let installed = installed.and_then(|package| package["version"].as_str().map(str::to_owned));
    let version = installed.or_else(|| {
        let package = read("package.json")?;
        let version = |key: &str| package[key]["prisma"].as_str().map(str::to_owned);
        version("devDependencies").or_else(|| version("dependencies"))
    })?;
    version.trim_start_matches(|c: char| !c.is_ascii_digit()).split('.').next()?.parse().ok()
}

pub(super) fn drizzle(folder: &Folder) -> Option<Migrations> {
    let file = folder.first_of(&[
        "drizzle.config.ts",
        "drizzle.config.js",
        "drizzle.config.mjs",
        "drizzle.config.json",
    ])?;
    let text = folder.text(file);
    if !text.contains("postgres") && !text.contains("\"pg\"") && !text.contains("'pg'") {
        return None;
    }
    let out = plain_folder(&quoted_after(&text, "out").unwrap_or_else(|| "drizzle".to_owned()));
    let schema = quoted_after(&text, "schema").map(|schema| plain_folder(&schema));
    let launcher = node_launcher(folder);
    let has_migrations =
        folder.files().iter().any(|path| has_extension(path, "sql") && path.starts_with(&format!("{out}/")));
    if has_migrations {
        let inputs = vec![below(&out), file.to_owned()];
        return Some(Migrations::command("Drizzle", file, format!("{launcher}drizzle-kit migrate"), inputs));
    }
    let inputs = schema.into_iter().chain([file.to_owned()]).collect();
    Some(Migrations::command("Drizzle", file, format!("{launcher}drizzle-kit push --force"), inputs))
}

pub(super) fn knex(folder: &Folder) -> Option<Migrations> {
    let file = folder.files().iter().find(|file| is_knexfile(folder, file))?.as_str();
    let text = folder.text(file);
    if text.contains("mysql") || text.contains("sqlite") && !text.contains("pg") {
        return None;
    }
    let directory =
        plain_folder(&quoted_after(&text, "directory").unwrap_or_else(|| "migrations".to_owned()));
    // Knex changes to the folder of its configuration.
    let top = parent(file);
    let directory = if top.is_empty() { directory } else { format!("{top}/{directory}") };
    let mut inputs = vec![below(&directory), file.to_owned()];
    inputs.extend(lock_file(folder).map(str::to_owned));
    // Knex uses the environment "development" by default.
    let names_url = |text: &str| text.contains("DATABASE_URL") || text.contains("process.env.PG");
    let of_default = knex_environment(&text, "development").unwrap_or(&text);
    let is_of_tests = !names_url(of_default) && knex_environment(&text, "test").is_some_and(names_url);
    let option = if is_of_tests { " --env test" } else { "" };
    let place = if top.is_empty() { String::new() } else { format!(" --knexfile {}", word(file)) };
    let setup = format!("{}knex migrate:latest{place}{option}", node_launcher(folder));
    let note =
        (!is_of_tests && !names_url(of_default)).then(|| format!("{file} must connect to DATABASE_URL."));
    Some(Migrations::command("Knex", file, setup, inputs).note(note))
}

/// Returns true for a Knex configuration, unless it belongs to a project in a subfolder.
fn is_knexfile(folder: &Folder, file: &str) -> bool {
    let mut above = file.match_indices('/').map(|(at, _)| &file[..at]);
    ["js", "ts", "cjs", "mjs"].iter().any(|end| name(file) == format!("knexfile.{end}"))
        && !above.any(|above| folder.has(&format!("{above}/package.json")))
}

/// Returns the part of a `knexfile` that describes one environment.
fn knex_environment<'t>(text: &'t str, environment: &str) -> Option<&'t str> {
    let begin = |name: &str| {
        text.match_indices(name).map(|(at, _)| at).find(|at| {
            let rest = text[at + name.len()..].trim_start_matches(['"', '\'']).trim_start();
            rest.strip_prefix(':').is_some_and(|rest| rest.trim_start().starts_with('{'))
        })
    };
    let at = begin(environment)?;
    let others = ["development", "test", "staging", "production"].into_iter().filter_map(begin);
    let end = others.filter(|other| *other > at).min().unwrap_or(text.len());
    Some(&text[at..end])
}

pub(super) fn sequelize(folder: &Folder) -> Option<Migrations> {
    let found = folder.first_of(&[".sequelizerc"]);
    let package = folder.text("package.json");
    let found = found.or_else(|| package.contains("\"sequelize-cli\"").then_some("package.json"))?;
    let directory =
        folder.first_of(&["migrations", "db/migrations", "src/migrations", "database/migrations"])?;
    let setup = format!("{}sequelize-cli db:migrate", node_launcher(folder));
    let inputs = vec![below(directory), "config/**".to_owned()];
    let note = "Its configuration must have use_env_variable: \"DATABASE_URL\".".to_owned();
    Some(Migrations::command("Sequelize", found, setup, inputs).note(note))
}

pub(super) fn node_pg_migrate(folder: &Folder) -> Option<Migrations> {
    if !folder.text("package.json").contains("\"node-pg-migrate\"") {
        return None;
    }
    let setup = format!("{}node-pg-migrate up", node_launcher(folder));
    Some(Migrations::command("node-pg-migrate", "package.json", setup, patterns(["migrations/**"])))
}

/// Detects a script in `package.json` whose name indicates that the script migrates a database.
pub(super) fn script(folder: &Folder) -> Option<Migrations> {
    const NAMES: [&str; 8] = [
        "db:migrate",
        "migrate",
        "migrate:up",
        "migration:run",
        "migrations:run",
        "migrate:latest",
        "db:migrate:up",
        "typeorm:migrate",
    ];
    let package: serde_json::Value = serde_json::from_str(&folder.text("package.json")).ok()?;
    let name = NAMES.into_iter().find(|name| package["scripts"][name].is_string())?;
    let folders = folder.files().iter().map(|file| parent(file)).filter(|folder| {
        let last = folder.rsplit('/').next().unwrap_or_default();
        last == "migrations" || last == "migration"
    });
    let mut inputs: Vec<_> = folders.map(|folder| format!("{}/**", escaped(folder))).collect();
    inputs.dedup();
    let launcher = match node_launcher(folder) {
        "pnpm exec " => "pnpm run",
        "yarn " => "yarn run",
        _ => "npm run",
    };
    let setup = format!("{launcher} {name}");
    Some(Migrations::command("a script of package.json", "package.json", setup, inputs))
}

fn lock_file(folder: &Folder) -> Option<&'static str> {
    folder.first_of(&["pnpm-lock.yaml", "yarn.lock", "bun.lock", "package-lock.json"])
}
