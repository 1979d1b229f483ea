//! Writes the text of `pgfresh.toml`, with a comment that names the source of each value.

use super::discovery::Discovery;
use super::steps::TemplateKeys;
use crate::project::compose::{DatabaseService, Decision};
use crate::project::migrations::Steps;

/// Maximum length of text from a project's file in a comment.
const MAX_QUOTED: usize = 100;
/// Libraries for `shared_preload_libraries` that PostgreSQL itself has.
const OWN_LIBRARIES: [&str; 5] =
    ["pg_stat_statements", "auto_explain", "auth_delay", "passwordcheck", "pg_prewarm"];
/// Name of the unnamed template's database.
const UNNAMED: &str = "app";

/// Returns the whole file.
pub(super) fn text(discovery: &Discovery) -> String {
    let mut text = String::from(
        "# Written by \"pgfresh init\". pgfresh's page \"Configuration reference\" has all keys.\n",
    );
    text += &postgres(discovery.service.as_ref());
    text += &template(discovery);
    text += "\n# If each test connects once, its database can be returned as soon as the connection closes.\n\
        # [database]\n# linger = \"0\"\n";
    text
}

/// Returns the tables for the server. If no project file describes a server, the tables are commented out.
fn postgres(service: Option<&DatabaseService>) -> String {
    let Some(service) = service else {
        let newest = server::NEWEST_PACKAGED;
        return format!(
            "\n# Without a version, pgfresh uses the PostgreSQL on PATH, or else the newest one.\n# [postgres]\n# version = \"{newest}\"\n"
        );
    };
    let mut text = comment(&format!(
        "{}: service \"{}\", image {}",
        service.file, service.name, service.image.reference
    ));
    if !service.others.is_empty() {
        text += &comment(&format!("Other services with PostgreSQL: {}.", service.others.join(", ")));
    }
    for extension in &service.image.extensions {
        let package = extension.package.map(|package| {
            let major = service.image.major.map_or_else(|| "MAJOR".to_owned(), |major| major.to_string());
            format!(" (Debian: postgresql-{major}-{package})")
        });
        text += &comment(&format!(
            "The image has the extension {}. Your PostgreSQL needs it, too{}.",
            extension.name,
            package.unwrap_or_default()
        ));
    }
    if service.has_password {
        text += &comment(
            "Tests read the user and the password from DATABASE_URL. pgfresh makes a new password for each server.",
        );
    }
    for note in &service.notes {
        text += &comment(&format!("Not taken over: {note}"));
    }
    text += "[postgres]\n";
    text += &match service.image.major {
        Some(major) if server::MAJORS.contains(&major) => format!("version = \"{major}\"\n"),
        Some(major) => format!(
            "# pgfresh supports PostgreSQL {} to {}, but not {major}.\n# version = \"{}\"\n",
            server::MAJORS.start(),
            server::MAJORS.end(),
            if major > *server::MAJORS.end() { server::MAJORS.end() } else { server::MAJORS.start() }
        ),
        None => {
            format!(
                "# The image's tag names no major version.\n# version = \"{}\"\n",
                server::NEWEST_PACKAGED
            )
        }
    };
    format!("\n{text}{}", settings(service))
}

/// Returns the table of server settings.
fn settings(service: &DatabaseService) -> String {
    let mut taken: Vec<(String, String)> = Vec::new();
    let mut left_out = String::new();
    for setting in &service.settings {
        match setting.decision {
            Decision::Taken => taken.push((setting.name.clone(), setting.value.clone())),
            Decision::LeftOut(why) => {
                let value = if setting.value.is_empty() { "" } else { &format!(" = {}", setting.value) };
                left_out += &comment(&format!("Left out: {}{value} ({why})", setting.name));
            }
        }
    }
    let preloaded: Vec<_> = service
        .image
        .extensions
        .iter()
        .filter(|extension| extension.is_preloaded)
        .map(|extension| extension.name)
        .collect();
    let is_set = taken.iter().any(|(name, _)| name == "shared_preload_libraries");
    if !preloaded.is_empty() && !is_set {
        taken.push(("shared_preload_libraries".to_owned(), preloaded.join(",")));
    }
    for (_, value) in taken.iter().filter(|(name, _)| name == "shared_preload_libraries") {
        let own = |library: &&str| !library.is_empty() && !OWN_LIBRARIES.contains(library);
        let libraries: Vec<_> = value.split(',').map(str::trim).filter(own).collect();
        if !libraries.is_empty() {
            let libraries = libraries.join(", ");
            left_out += &comment(&format!("Your PostgreSQL needs these libraries, too: {libraries}."));
        }
    }
    taken.reverse();
    let mut known = Vec::new();
    taken.retain(|(name, _)| {
        !known.contains(name) && {
            known.push(name.clone());
            true
        }
    });
    taken.reverse();
    let lines: String = taken
        .iter()
        .flat_map(|(name, value)| [key(name), " = ".to_owned(), quoted(value), "\n".to_owned()])
        .collect();
    if lines.is_empty() { left_out } else { format!("\n[postgres.settings]\n{left_out}{lines}") }
}

fn template(discovery: &Discovery) -> String {
    let name = discovery.database.as_ref().map_or(UNNAMED, |(name, _)| name);
    let keys = TemplateKeys::of(discovery, name);
    let mut text = String::from("\n");
    if let Some(migrations) = discovery.migrations.first() {
        text += &comment(&format!("{}: {}", migrations.found_in, migrations.tool));
        for note in &migrations.notes {
            text += &comment(note);
        }
    }
    for other in discovery.migrations.iter().skip(1) {
        let how = match &other.steps {
            Steps::Command { setup, .. } => setup.clone(),
            Steps::Sql(files) => format!("sql = [{}]", files.join(", ")),
        };
        text += &comment(&format!("{} has {}, too: {how}", other.found_in, other.tool));
    }
    if let Some(service) = discovery.service.as_ref().filter(|service| !service.scripts.is_empty()) {
        text += &comment(&format!("{} mounts init scripts, which run first.", service.file));
    }
    if let Some((role, file)) = &discovery.role {
        text += &comment(&format!("{file}: the role \"{role}\", which the scripts name."));
    }
    if keys.prepare.is_empty() && keys.setup.is_none() && keys.sql.is_empty() {
        return text
            + "# pgfresh found no migrations here. Describe how to build the schema with one of these keys.\n\
            # [template]\n\
            # sql    = [\"db/schema.sql\"]                  # SQL files, in this order\n\
            # setup  = \"your-migration-command\"           # any command that migrates DATABASE_URL\n\
            # inputs = [\"migrations/**\"]                  # the files that the command reads\n";
    }
    if let Some((name, file)) = discovery.database.as_ref().filter(|(name, _)| name != UNNAMED) {
        text += &comment(&format!("{file}: the database is called {name}."));
    }
    text += &if name == UNNAMED { "[template]\n".to_owned() } else { format!("[template.{name}]\n") };
    let width = if keys.prepare.is_empty() { "inputs" } else { "prepare" }.len();
    let mut line = |key: &str, value: &str| text += &format!("{key:width$} = {value}\n");
    if !keys.prepare.is_empty() {
        line("prepare", &script(&keys.prepare));
    }
    if !keys.sql.is_empty() {
        line("sql", &list(&keys.sql));
    }
    if let Some(setup) = &keys.setup {
        line("setup", &quoted(setup));
    }
    if !keys.inputs.is_empty() {
        line("inputs", &list(&keys.inputs));
    } else if keys.setup.is_some() {
        text += "# List the files that the command reads. Without this list, the command runs every time.\n# inputs = [\"migrations/**\"]\n";
    }
    text
}

/// Returns the line that summarizes what init found.
pub(super) fn summary(discovery: &Discovery) -> String {
    let mut parts = Vec::new();
    match discovery.migrations.first() {
        Some(migrations) => parts.push(format!("{} ({})", migrations.tool, migrations.found_in)),
        None => parts.push("no migrations found, so fill in [template]".to_owned()),
    }
    if let Some(service) = &discovery.service {
        let major = service.image.major.map(|major| format!(" {major}")).unwrap_or_default();
        parts.push(format!("PostgreSQL{major} ({})", service.file));
    }
    one_line(&parts.join(", "))
}

/// Returns the three commands that a user typically runs next.
pub(super) fn next_commands(discovery: &Discovery) -> String {
    let is_built = !discovery.migrations.is_empty()
        || discovery.service.as_ref().is_some_and(|service| !service.scripts.is_empty());
    let first = if is_built {
        ("pgfresh template build", "run the migrations once")
    } else {
        ("pgfresh psql", "open an empty database")
    };
    let system = ci_system(discovery);
    let commands = [
        (first.0.to_owned(), first.1),
        (format!("pgfresh run -- {}", discovery.test_command()), "run the tests"),
        (format!("pgfresh ci {system}"), "print a CI configuration"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let lines: String = commands
        .iter()
        .flat_map(|(command, what)| [format!("  {command:width$}  # {what}"), "\n".to_owned()])
        .collect();
    format!("Next:\n{lines}")
}

/// Returns the CI system that the project has a configuration for.
fn ci_system(discovery: &Discovery) -> &'static str {
    const SYSTEMS: [(&str, &str); 6] = [
        (".gitlab-ci.yml", "gitlab"),
        (".woodpecker.yml", "woodpecker"),
        (".circleci", "circleci"),
        ("Jenkinsfile", "jenkins"),
        ("azure-pipelines.yml", "azure"),
        (".buildkite", "buildkite"),
    ];
    SYSTEMS.iter().find(|(file, _)| discovery.folder.has(file)).map_or("github", |(_, system)| system)
}

/// Returns a single-line comment, even if `text` contains line breaks or control characters.
fn comment(text: &str) -> String {
    format!("# {}\n", one_line(text))
}

fn one_line(text: &str) -> String {
    let mut words = String::new();
    for word in text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
    {
        if !words.is_empty() {
            words.push(' ');
        }
        if word.chars().count() > MAX_QUOTED {
            words.extend(word.chars().take(MAX_QUOTED));
            words.push('…');
        } else {
            words += word;
        }
    }
    words
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    // JSON's escapes are valid in TOML, which also requires one for DEL.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn list(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
    let line = format!("[{}]", quoted.join(", "));
    if line.len() <= 100 { line } else { format!("[\n    {},\n]", quoted.join(",\n    ")) }
}

/// Returns a shell script as a TOML string: a basic string for a single line, or a multi-line literal.
fn script(lines: &[String]) -> String {
    let text = lines.join("\n");
    let is_plain = !text.contains("'''") && !text.chars().any(|c| c.is_control() && c != '\n');
    match lines {
        [line] => quoted(line),
        _ if is_plain => format!("'''\n{text}\n'''"),
        _ => quoted(&text),
    }
}

/// Returns a setting's name as a TOML key, in quotes if necessary: a dot would otherwise create a table.
fn key(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}
