//! Detects Alembic and Django.

use super::{Migrations, below, name, parent, patterns, plain_folder, word};
use crate::project::folder::Folder;
use crate::project::python_launcher;

/// Detects Django. `manage.py` names the settings module, and each application's folder contains its migrations.
pub(super) fn django(folder: &Folder) -> Option<Migrations> {
    let manage = folder.text("manage.py");
    if !manage.contains("django") {
        return None;
    }
    let mut inputs = patterns(["manage.py"]);
    let settings = manage.split(['"', '\'']).skip_while(|text| *text != "DJANGO_SETTINGS_MODULE").nth(2);
    if let Some(module) = settings {
        let path = module.replace('.', "/");
        let file = format!("{path}.py");
        inputs.push(if folder.has(&file) { file } else { below(&path) });
    }
    inputs.extend(patterns(["**/models.py", "**/models/**/*.py", "**/migrations/*.py"]));
    let setup = format!("{}python manage.py migrate", python_launcher(folder));
    Some(Migrations::command("Django", "manage.py", setup, inputs))
}

/// Detects Alembic. `alembic.ini` can be in a subfolder, where the command then runs.
pub(super) fn alembic(folder: &Folder) -> Option<Migrations> {
    let ini = folder.files().iter().find(|file| name(file) == "alembic.ini");
    let (file, location) = if let Some(ini) = ini {
        (ini.as_str(), key(&folder.text(ini), "script_location")?)
    } else {
        let pyproject: toml::Table = folder.text("pyproject.toml").parse().ok()?;
        let location = pyproject.get("tool")?.get("alembic")?.get("script_location")?.as_str()?;
        ("pyproject.toml", location.to_owned())
    };
    let top = parent(file);
    let within = |path: &str| if top.is_empty() { path.to_owned() } else { format!("{top}/{path}") };
    // A location with a colon consists of a package and a folder in that package.
    let location = plain_folder(
        &location.replace('.', if location.contains(':') { "/" } else { "." }).replace(':', "/"),
    );
    let scripts = within(&location);
    let mut inputs = vec![below(&scripts), file.to_owned()];
    let environment = folder.text(&format!("{scripts}/env.py"));
    inputs.extend(imported(folder, &environment, top));
    let launcher = python_launcher(folder);
    let setup = if top.is_empty() {
        format!("{launcher}alembic upgrade head")
    } else {
        format!("cd {} && {launcher}alembic upgrade head", word(top))
    };
    let has_fixed_url = key(&folder.text(file), "sqlalchemy.url").is_some_and(|url| url.contains("//"))
        && !["environ", "getenv", "DATABASE_URL", "settings", "config.get", "url"]
            .iter()
            .any(|word| environment.replace("sqlalchemy.url", "").contains(word));
    let note = has_fixed_url.then(|| {
        format!("{scripts}/env.py must connect to DATABASE_URL. It seems to use sqlalchemy.url of {file}.")
    });
    Some(Migrations::command("Alembic", file, setup, inputs).note(note))
}

/// Returns patterns for those of the project's own packages that `env.py` imports.
fn imported(folder: &Folder, environment: &str, top: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = environment.lines().map(str::trim_start);
    let modules =
        lines.filter_map(|line| line.strip_prefix("from ").or_else(|| line.strip_prefix("import ")));
    for module in
        modules.filter_map(|rest| rest.split([' ', '.', ',']).next()).filter(|name| !name.is_empty())
    {
        let base = if top.is_empty() { String::new() } else { format!("{top}/") };
        for place in [
            format!("{base}src/{module}"),
            format!("{base}{module}"),
            format!("src/{module}"),
            module.to_owned(),
        ] {
            let pattern = if folder.has(&format!("{place}.py")) {
                format!("{place}.py")
            } else if folder.path().join(&place).is_dir() {
                format!("{place}/**/*.py")
            } else {
                continue;
            };
            if !found.contains(&pattern) {
                found.push(pattern);
            }
            break;
        }
    }
    found
}

/// Returns the value of a key in an INI file.
fn key(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}
