//! Detects tools whose migrations are SQL files, and SQL files without a tool.

use std::cmp::Ordering;

use super::{Migrations, escaped, has_extension, name, parent, patterns, word};
use crate::project::folder::Folder;

/// Folders whose SQL files are probably the schema, the most probable one first.
const FOLDERS: [&str; 10] =
    ["migrations", "migration", "migrate", "schema", "schemas", "sql", "db", "database", "init", "ddl"];
/// Files that are probably the whole schema.
const FILES: [&str; 5] = ["structure.sql", "schema.sql", "init.sql", "create.sql", "tables.sql"];
/// Folders whose SQL files probably aren't the schema.
const OTHERS: [&str; 10] =
    ["test", "tests", "fixtures", "testdata", "seed", "seeds", "queries", "query", "examples", "docs"];

/// Maximum number of included files that pgfresh lists.
const MAX_INCLUDED: usize = 200;
/// Database URL with TLS disabled, for drivers that would otherwise require TLS.
const PLAIN: &str = "\"$DATABASE_URL?sslmode=disable\"";

pub(super) fn goose(folder: &Folder) -> Option<Migrations> {
    let file = marked(folder, "+goose Up")?;
    let goose =
        if folder.text("go.mod").contains("pressly/goose/v3/cmd/goose") { "go tool goose" } else { "goose" };
    let place = parent(file);
    let setup = format!("{goose} -dir {} postgres \"$DATABASE_URL\" up", word(place_or_here(place)));
    Some(Migrations::command("goose", file, setup, vec![sql_in(place)]))
}

pub(super) fn sql_migrate(folder: &Folder) -> Option<Migrations> {
    let file = marked(folder, "+migrate Up")?;
    let source = "datasource: ${DATABASE_URL}?sslmode=disable";
    let note = (!folder.text("dbconfig.yml").contains("DATABASE_URL"))
        .then(|| format!("dbconfig.yml must have {source}."));
    let inputs = vec![sql_in(parent(file)), "dbconfig.yml".to_owned()];
    Some(Migrations::command("sql-migrate", file, "sql-migrate up", inputs).note(note))
}

pub(super) fn tern(folder: &Folder) -> Option<Migrations> {
    let file = marked(folder, "create above / drop below")?;
    let place = parent(file);
    let setup =
        format!("tern migrate --migrations {} --conn-string \"$DATABASE_URL\"", word(place_or_here(place)));
    Some(Migrations::command("tern", file, setup, vec![sql_in(place)]))
}

pub(super) fn golang_migrate(folder: &Folder) -> Option<Migrations> {
    let up = |file: &&String| file.ends_with(".up.sql") && number(name(file)).is_some();
    let file = folder.files().iter().find(up)?;
    // sqlx names reversible migrations in the same way, so leave a project that uses sqlx to [`sqlx`].
    if folder.text("Cargo.toml").contains("sqlx") {
        return None;
    }
    let place = parent(file);
    let setup = format!("migrate -path {} -database {PLAIN} up", word(place_or_here(place)));
    Some(Migrations::command("golang-migrate", file, setup, vec![sql_in(place)]))
}

pub(super) fn dbmate(folder: &Folder) -> Option<Migrations> {
    let file = marked(folder, "migrate:up")?;
    let place = parent(file);
    let option = if place == "db/migrations" {
        String::new()
    } else {
        format!(" --migrations-dir {}", word(place_or_here(place)))
    };
    let setup = format!("dbmate --no-dump-schema --url {PLAIN}{option} migrate");
    Some(Migrations::command("dbmate", file, setup, vec![sql_in(place)]))
}

/// Detects sqlx. If the program runs its migrations itself, the template needs sqlx's migration table, so
/// `sqlx migrate run` must create it. Otherwise pgfresh runs the SQL files itself.
pub(super) fn sqlx(folder: &Folder) -> Option<Migrations> {
    if !folder.text("Cargo.toml").contains("sqlx") {
        return None;
    }
    let in_migrations = |file: &&String| has_extension(file, "sql") && parent(file).ends_with("migrations");
    let file = folder.files().iter().find(in_migrations)?;
    let place = parent(file);
    let here: Vec<_> =
        folder.files().iter().filter(|file| parent(file) == place).map(String::as_str).collect();
    let sources =
        folder.files().iter().filter(|file| file.starts_with("src/") && has_extension(file, "rs")).take(200);
    let runs_itself = sources
        .map(|file| folder.text(file))
        .any(|text| text.contains("migrate!") || text.contains("Migrator"));
    if runs_itself || here.iter().any(|file| file.ends_with(".up.sql")) {
        let option = if place == "migrations" { String::new() } else { format!(" --source {}", word(place)) };
        let setup = format!("sqlx migrate run{option}");
        return Some(Migrations::command("sqlx", file, setup, vec![sql_in(place)]));
    }
    Some(Migrations::sql("sqlx", file, in_order(place, "*.sql", &here)))
}

pub(super) fn diesel(folder: &Folder) -> Option<Migrations> {
    folder.first_of(&["diesel.toml"])?;
    let inputs = patterns(["migrations/**", "diesel.toml"]);
    Some(Migrations::command("Diesel", "diesel.toml", "diesel migration run", inputs))
}

/// Detects SQL files in a folder with a typical name, or a single schema file.
pub(super) fn plain(folder: &Folder) -> Option<Migrations> {
    let is_other = |file: &str| file.split('/').rev().skip(1).any(|part| OTHERS.contains(&part));
    let is_sql = |file: &str| has_extension(file, "sql") && !is_down(file) && !is_other(file);
    let files: Vec<&str> = folder.files().iter().map(String::as_str).filter(|file| is_sql(file)).collect();
    let rank = |place: &str| FOLDERS.iter().position(|known| name(place) == *known);
    let places = files.iter().map(|file| parent(file)).filter(|place| rank(place).is_some());
    let place = places.min_by_key(|place| (rank(place), place.matches('/').count(), *place));
    let single = |place: &str| {
        let path =
            |file: &&str| if place.is_empty() { (*file).to_owned() } else { format!("{place}/{file}") };
        let file = FILES.iter().find(|file| files.contains(&path(file).as_str()))?;
        Some(Migrations::sql("SQL", &path(file), vec![escaped(&path(file))]))
    };
    let Some(place) = place else { return single("") };
    let here: Vec<_> = files.iter().copied().filter(|file| parent(file) == place).collect();
    let all = || Some(Migrations::sql("SQL", here.first()?, up_files(folder, place, &here)));
    let undoing = here.iter().find(|file| folder.text(file).lines().any(begins_undoing));
    let note = undoing.map(|file| {
        format!("{file} has a part that undoes the migration. Run it with its own tool in setup.")
    });
    if here.iter().all(|file| number(name(file)).is_some()) {
        return all().map(|found| found.note(note));
    }
    single(place).or_else(|| {
        let order = "These files run in the order of their names: check it.".to_owned();
        all().map(|found| found.note(order).note(note))
    })
}

/// Suffixes of the names of files that undo a migration.
const DOWN: [&str; 4] = ["down", "undo", "rollback", "revert"];

/// Returns true for the name of a file that undoes a migration, such as `1_orders.down.sql`.
fn is_down(file: &str) -> bool {
    let stem = name(file).strip_suffix(".sql").unwrap_or_default().to_ascii_lowercase();
    stem.rsplit_once(['.', '_', '-']).is_some_and(|(_, last)| DOWN.contains(&last))
}

/// Returns true for a comment that begins the part of a migration that undoes it, such as `-- Down`.
fn begins_undoing(line: &str) -> bool {
    let line = line.trim();
    let Some(comment) = line.strip_prefix("--").or_else(|| line.strip_prefix('#')) else { return false };
    let comment = comment.to_ascii_lowercase();
    let words: Vec<_> =
        comment.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
    let last = words.last().is_some_and(|last| DOWN.contains(last) || *last == "downs");
    words.len() <= 3 && last
}

/// Returns patterns for the files of a folder, without those that undo them.
fn up_files(folder: &Folder, place: &str, here: &[&str]) -> Vec<String> {
    let has_down = folder.files().iter().any(|file| parent(file) == place && is_down(file));
    if !has_down {
        let is_up = here.iter().all(|file| file.ends_with(".up.sql"));
        return in_order(place, if is_up { "*.up.sql" } else { "*.sql" }, here);
    }
    for suffix in [".up.sql", "_up.sql", "-up.sql"] {
        if here.iter().all(|file| file.ends_with(suffix)) {
            return in_order(place, &format!("*{suffix}"), here);
        }
    }
    let mut files = here.to_vec();
    files.sort_by(|a, b| natural(name(a), name(b)));
    files.into_iter().map(escaped).collect()
}

/// Returns the files that these SQL files read with psql's `\i`, `\ir` and `\copy`, and the files that those read.
pub(crate) fn included(folder: &Folder, files: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut unread: Vec<String> = files.to_vec();
    while let Some(file) = unread.pop() {
        for path in folder.text(&file).lines().filter_map(|line| included_by(line.trim(), parent(&file))) {
            let is_new = !found.contains(&path) && !files.contains(&path);
            if is_new && found.len() < MAX_INCLUDED && folder.path().join(&path).is_file() {
                if has_extension(&path, "sql") {
                    unread.push(path.clone());
                }
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the path that a psql command reads. `place` is the folder of the command's file.
fn included_by(line: &str, place: &str) -> Option<String> {
    let (command, rest) = line.strip_prefix('\\')?.split_once(char::is_whitespace)?;
    let rest = match command {
        "i" | "include" | "ir" | "include_relative" => rest,
        "copy" => {
            let at = rest.to_ascii_lowercase().find(" from ")?;
            &rest[at + " from ".len()..]
        }
        _ => return None,
    };
    let rest = rest.trim();
    let path = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next()?,
        None => rest.split_whitespace().next()?,
    };
    let path = path.trim_end_matches(';').trim_start_matches("./");
    let is_relative = command == "ir" || command == "include_relative";
    let path = if is_relative && !place.is_empty() { format!("{place}/{path}") } else { path.to_owned() };
    (!path.starts_with('/') && !path.contains("..")).then_some(path)
}

/// Returns a pattern for the files. Returns the files themselves if a pattern would run them in the wrong order, since
/// by name `10.sql` comes before `9.sql`.
pub(super) fn in_order(place: &str, pattern: &str, files: &[&str]) -> Vec<String> {
    let mut by_number = files.to_vec();
    by_number.sort_by(|a, b| natural(name(a), name(b)));
    let mut by_name = files.to_vec();
    by_name.sort_unstable();
    if by_name == by_number {
        let folder = if place.is_empty() { String::new() } else { format!("{}/", escaped(place)) };
        return vec![format!("{folder}{pattern}")];
    }
    by_number.into_iter().map(escaped).collect()
}

/// Compares names, comparing the numbers in them by value.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        match (digits(a), digits(b)) {
            (0, _) | (_, 0) => match (a.chars().next(), b.chars().next()) {
                (Some(x), Some(y)) if x == y => (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]),
                _ => return a.cmp(b),
            },
            (x, y) => {
                let value = |digits: &str| digits.trim_start_matches('0').to_owned();
                let (first, second) = (value(&a[..x]), value(&b[..y]));
                match first.len().cmp(&second.len()).then(first.cmp(&second)) {
                    Ordering::Equal => (a, b) = (&a[x..], &b[y..]),
                    unequal => return unequal,
                }
            }
        }
    }
}

/// Returns the number at the start of a name, after an optional `V`.
fn number(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(['V', 'v']).unwrap_or(name);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Returns the first SQL file that contains `mark` in a comment.
fn marked<'f>(folder: &'f Folder, mark: &str) -> Option<&'f String> {
    let sql = folder.files().iter().filter(|file| has_extension(file, "sql")).take(200);
    sql.into_iter().find(|file| {
        folder.text(file).lines().any(|line| line.trim_start().starts_with("--") && line.contains(mark))
    })
}

fn place_or_here(place: &str) -> &str {
    if place.is_empty() { "." } else { place }
}

fn sql_in(place: &str) -> String {
    if place.is_empty() { "*.sql".to_owned() } else { format!("{}/*.sql", escaped(place)) }
}
