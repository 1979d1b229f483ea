//! Detects Alembic and Django.

use super::{Migrations, below, name, parent, patterns, plain_folder, quoted_after, word};
use crate::project::folder::Folder;
use crate::project::{known, python_launcher};

/// Maximum number of a settings module's imports that pgfresh follows.
const MAX_IMPORTS: usize = 50;
/// Signs of Python code that reads the database's address from its environment or from another module.
const DYNAMIC: [&str; 9] = [
    "environ[",
    "environ.",
    "getenv",
    "DATABASE_URL",
    "settings",
    "set_main_option",
    "create_engine",
    "create_async_engine",
    "env(",
];

/// Detects Django. `manage.py` names the settings module, and each application's folder contains its migrations. In a
/// project, the only `manage.py` can be in a subfolder, where the command then runs.
pub(super) fn django(folder: &Folder) -> Option<Migrations> {
    let starts_django = |file: &&String| name(file) == "manage.py" && folder.text(file).contains("django");
    let mut all = folder.files().iter().filter(starts_django);
    let manage = all.next()?;
    let top = parent(manage);
    if !top.is_empty() && (all.next().is_some() || known(folder).is_none()) {
        return None;
    }
    let project = Folder::new(&folder.path().join(top));
    let mut inputs = vec!["manage.py".to_owned()];
    let mut note = None;
    let text = project.text("manage.py");
    let settings = text.split(['"', '\'']).skip_while(|text| *text != "DJANGO_SETTINGS_MODULE").nth(2);
    if let Some(module) = settings {
        let path = module.replace('.', "/");
        let mut files = Vec::new();
        add_module(&project, &path, &mut files);
        note = files.iter().find(|file| has_fixed_host(&project.text(file))).map(|file| {
            let file = within(top, file);
            format!("{file} must take the database's host, port, user, password and name from DATABASE_URL or PG*.")
        });
        inputs.extend(if files.is_empty() { vec![below(&path)] } else { files });
    }
    inputs.extend(patterns(["**/models.py", "**/models/**/*.py", "**/migrations/*.py"]));
    let inputs = inputs.iter().map(|input| within(top, input)).collect();
    let setup = command_in(folder, top, "python manage.py migrate");
    Some(Migrations::command("Django", manage, setup, inputs).note(note))
}

fn within(top: &str, path: &str) -> String {
    if top.is_empty() { path.to_owned() } else { format!("{top}/{path}") }
}

/// Returns a shell command that runs `command` in the subfolder `top`. The package manager of the subfolder starts it
/// or, if there is none, that of `folder`.
fn command_in(folder: &Folder, top: &str, command: &str) -> String {
    if top.is_empty() {
        return format!("{}{command}", python_launcher(folder));
    }
    let own = python_launcher(&Folder::new(&folder.path().join(top)));
    let launcher = if own.is_empty() { python_launcher(folder) } else { own };
    format!("cd {} && {launcher}{command}", word(top))
}

/// Adds a settings module's file to `files`, and the files of the settings modules that it imports.
fn add_module(folder: &Folder, path: &str, files: &mut Vec<String>) {
    let candidates = [format!("{path}.py"), format!("{path}/__init__.py")];
    let Some(file) = candidates.into_iter().find(|file| folder.has(file) && !files.contains(file)) else {
        return;
    };
    let (package, text) = (parent(&file).to_owned(), folder.text(&file));
    files.push(file);
    let lines = text.lines().map(str::trim_start);
    for line in lines.filter_map(|line| line.strip_prefix("from ")).take(MAX_IMPORTS) {
        let Some((module, names)) = line.split_once(" import ") else { continue };
        let dots = module.len() - module.trim_start_matches('.').len();
        let module_path = module[dots..].replace('.', "/");
        let base = package.split('/').rev().skip(dots.saturating_sub(1)).collect::<Vec<_>>();
        let base = base.into_iter().rev().collect::<Vec<_>>().join("/");
        let within = |path: &str| {
            if dots == 0 || base.is_empty() { path.to_owned() } else { format!("{base}/{path}") }
        };
        if module_path.is_empty() {
            for name in names.split([',', '(', ')', ' ']).filter(|name| !name.is_empty()) {
                add_module(folder, &within(name), files);
            }
        } else {
            add_module(folder, &within(&module_path), files);
        }
    }
}

/// Returns true if Django's settings name the host of a PostgreSQL database.
fn has_fixed_host(settings: &str) -> bool {
    settings.contains("django.db.backends.postgresql")
        && quoted_after(settings, "HOST").is_some_and(|host| !host.is_empty())
}

/// Detects Alembic. `alembic.ini` can be in a subfolder, where the command then runs.
pub(super) fn alembic(folder: &Folder) -> Option<Migrations> {
    let ini = folder.files().iter().find(|file| name(file) == "alembic.ini");
    let top = ini.map_or("", |ini| parent(ini));
    let within = |path: &str| within(top, path);
    // The configuration can be in pyproject.toml, apart from the URL.
    let project = within("pyproject.toml");
    let of_project = || {
        let document: toml::Table = folder.text(&project).parse().ok()?;
        let location = document.get("tool")?.get("alembic")?.get("script_location")?.as_str()?;
        Some((project.as_str(), location.to_owned()))
    };
    let of_ini = ini.and_then(|ini| Some((ini.as_str(), key(&folder.text(ini), "script_location")?)));
    let (file, location) = of_ini.or_else(of_project)?;
    // A location with a colon consists of a package and a folder in that package.
    let location = plain_folder(
        &location.replace('.', if location.contains(':') { "/" } else { "." }).replace(':', "/"),
    );
    let scripts = within(&location);
    let mut inputs = vec![below(&scripts), file.to_owned()];
    inputs.extend(ini.filter(|ini| *ini != file).cloned());
    let environment = folder.text(&format!("{scripts}/env.py"));
    // The folder of the scripts often has the name of the package alembic.
    let is_other = |pattern: &String| !pattern.starts_with(&format!("{scripts}/"));
    inputs.extend(imported(folder, &environment, top).into_iter().filter(is_other));
    let setup = command_in(folder, top, "alembic upgrade head");
    let code: String = environment.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let url = ini.and_then(|ini| key(&folder.text(ini), "sqlalchemy.url"));
    let has_fixed_url = url.is_some_and(|url| url.contains("//"))
        && code.contains("engine_from_config")
        && !DYNAMIC.iter().any(|sign| code.contains(sign));
    let note = has_fixed_url.then(|| {
        format!(
            "{scripts}/env.py must connect to DATABASE_URL, but it uses sqlalchemy.url of {}.",
            within("alembic.ini")
        )
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
