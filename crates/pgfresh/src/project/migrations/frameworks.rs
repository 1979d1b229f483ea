//! Detects frameworks that have their own migrations: Rails, Ecto and Laravel.

use super::{Migrations, below, has_extension, parent, patterns};
use crate::project::folder::Folder;

/// Detects Rails, which loads its schema file because that is faster than running the migrations.
pub(super) fn rails(folder: &Folder) -> Option<Migrations> {
    let found = folder.first_of(&["config/application.rb", "bin/rails"])?;
    let rails = if folder.has("bin/rails") { "bin/rails" } else { "bundle exec rails" };
    let run = |task: &str| format!("RAILS_ENV=test {rails} {task}");
    Some(match folder.first_of(&["db/structure.sql", "db/schema.rb"]) {
        Some(schema) => Migrations::command("Rails", schema, run("db:schema:load"), patterns([schema])),
        None => Migrations::command("Rails", found, run("db:migrate"), patterns(["db/migrate/**"])),
    })
}

pub(super) fn ecto(folder: &Folder) -> Option<Migrations> {
    let mix = folder.text("mix.exs");
    let is_migration = |file: &&String| {
        file.starts_with("priv/") && parent(file).ends_with("migrations") && has_extension(file, "exs")
    };
    let migration = folder.files().iter().find(is_migration);
    if !mix.contains("ecto") || migration.is_none() && !mix.contains("ecto_sql") {
        return None;
    }
    let migrations = migration.map_or("priv/repo/migrations", |file| parent(file));
    let inputs = vec![below(migrations), "config/**".to_owned()];
    let note = "config/test.exs must take the host, port, user, password and database from PG*.".to_owned();
    Some(Migrations::command("Ecto", "mix.exs", "MIX_ENV=test mix ecto.migrate", inputs).note(note))
}

pub(super) fn laravel(folder: &Folder) -> Option<Migrations> {
    folder.first_of(&["artisan"])?;
    let inputs = patterns(["database/migrations/**", "database/schema/**", "config/database.php"]);
    let setup = "DB_CONNECTION=pgsql DB_URL=\"$DATABASE_URL\" php artisan migrate --force";
    Some(Migrations::command("Laravel", "artisan", setup, inputs))
}
