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
    let task = if has_migrations { "migrate deploy" } else { "db push --skip-generate" };
    let configuration = folder.first_of(&CONFIGURATIONS);
    let is_usual =
        configuration.is_some() || ["prisma/schema.prisma", "schema.prisma"].contains(&schema.as_str());
    let option = if is_usual { String::new() } else { format!(" --schema {}", word(schema)) };
    let mut inputs = vec![if top.is_empty() { schema.clone() } else { below(top) }];
    inputs.extend(configuration.map(str::to_owned));
    Some(Migrations::command("Prisma", schema, format!("{launcher}prisma {task}{option}"), inputs))
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
    let file = folder.first_of(&["knexfile.js", "knexfile.ts", "knexfile.cjs", "knexfile.mjs"])?;
    let text = folder.text(file);
    let directory =
        plain_folder(&quoted_after(&text, "directory").unwrap_or_else(|| "migrations".to_owned()));
    let mut inputs = vec![below(&directory), file.to_owned()];
    inputs.extend(lock_file(folder).map(str::to_owned));
    let setup = format!("{}knex migrate:latest", node_launcher(folder));
    let names_url = text.contains("DATABASE_URL") || text.contains("process.env.PG");
    let note = (!names_url).then(|| format!("{file} must connect to DATABASE_URL."));
    Some(Migrations::command("Knex", file, setup, inputs).note(note))
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
    Some(Migrations::command("a script of package.json", "package.json", format!("npm run {name}"), inputs))
}

fn lock_file(folder: &Folder) -> Option<&'static str> {
    folder.first_of(&["pnpm-lock.yaml", "yarn.lock", "bun.lock", "package-lock.json"])
}
