//! Detects the kind of project in a folder: how to install its dependencies, run its tests and migrate its database.

pub(crate) mod compose;
pub(crate) mod folder;
pub(crate) mod migrations;
pub(crate) mod variables;

use std::path::Path;

use folder::Folder;

/// The steps a CI system needs to run the project's tests.
#[derive(Debug)]
pub(crate) struct Project {
    /// Kind of project, together with the file that identifies it.
    pub(crate) kind: &'static str,
    /// Debian- or Ubuntu-based container image, for CI systems that run jobs in containers.
    pub(crate) image: &'static str,
    /// Steps that install the programming language on a GitHub runner.
    pub(crate) github: &'static [&'static str],
    /// Commands that install the project's dependencies.
    pub(crate) dependencies: Vec<String>,
    /// Command that runs the tests.
    pub(crate) command: String,
    /// Notes about facts that pgfresh can't determine, so the user has to check them.
    pub(crate) notes: Vec<String>,
}

const SETUP_PYTHON: &[&str] = &[
    "- uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0",
    "  with: { python-version: \"3.13\" }",
];
const SETUP_NODE: &[&str] = &[
    "- uses: actions/setup-node@49933ea5288caeca8642d1e84afbd3f7d6820020 # v4.4.0",
    "  with: { node-version: \"22\" }",
];
const SETUP_GO: &[&str] = &[
    "- uses: actions/setup-go@d35c59abb061a4a6fb18e82ac0862c26744d6ab5 # v5.5.0",
    "  with: { go-version-file: go.mod }",
];
const SETUP_JAVA: &[&str] = &[
    "- uses: actions/setup-java@c5195efecf7bdfc987ee8bae7a71cb8b11521c00 # v4.7.1",
    "  with: { distribution: temurin, java-version: \"21\" }",
];
const SETUP_RUBY: &[&str] = &[
    "- uses: ruby/setup-ruby@a4effe49ee010ee53e1cf38f4be923e1a1d8b28f # v1.207.0",
    "  with: { ruby-version: \"3.3\" }",
];
const SETUP_ELIXIR: &[&str] = &["- run: sudo apt-get update -qq && sudo apt-get install -qq -y elixir"];

/// Placeholder for the test command if pgfresh can't determine it. The placeholder makes a CI job fail with a clear
/// error until the user replaces it.
pub(crate) const UNKNOWN_COMMAND: &str = "your-test-command";

/// Detects the kind of project in `folder`. The first match wins, so the order matters: for example, a Python or Go
/// project often has a `package.json` for its web pages.
pub(crate) fn detect(folder: &Path) -> Project {
    let folder = &Folder::new(folder);
    known(folder).unwrap_or_else(|| any(folder))
}

/// Detects the kind of project like [`detect`]. Returns `None` if no file identifies it.
pub(crate) fn known(folder: &Folder) -> Option<Project> {
    let kinds: [fn(&Folder) -> Option<Project>; 9] =
        [python, go, rust, java, ruby, elixir, php, dotnet, node];
    kinds.iter().find_map(|kind| kind(folder))
}

fn commands<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn python(folder: &Folder) -> Option<Project> {
    folder.first_of(&["pyproject.toml", "requirements.txt", "manage.py", "Pipfile", "setup.py"])?;
    let pyproject = folder.text("pyproject.toml");
    let mut notes = Vec::new();
    let prefix = python_launcher(folder);
    let (kind, dependencies) = match prefix {
        "uv run " => ("a Python project with uv", commands(["pip install uv", "uv sync --locked"])),
        "poetry run " => ("a Python project with Poetry", commands(["pip install poetry", "poetry install"])),
        "pipenv run " => {
            ("a Python project with Pipenv", commands(["pip install pipenv", "pipenv sync --dev"]))
        }
        _ => pip(folder, &pyproject, &mut notes),
    };
    let pytest = folder.first_of(&["pytest.ini", "conftest.py", "tests/conftest.py"]).is_some()
        || pyproject.contains("[tool.pytest")
        || !folder.has("manage.py");
    let test = if pytest { "pytest" } else { "python manage.py test" };
    let command = format!("{prefix}{test}");
    Some(Project { kind, image: "python:3.13", github: SETUP_PYTHON, dependencies, command, notes })
}

/// Returns the prefix for running a program installed by the project's Python package manager, such as `uv run`.
pub(crate) fn python_launcher(folder: &Folder) -> &'static str {
    if folder.has("uv.lock") {
        "uv run "
    } else if folder.has("poetry.lock") || folder.text("pyproject.toml").contains("[tool.poetry]") {
        "poetry run "
    } else if folder.has("Pipfile") {
        "pipenv run "
    } else {
        ""
    }
}

/// Returns commands that install dependencies with pip alone: from all requirement files, or if there are none, the
/// project itself with its test extra.
fn pip(folder: &Folder, pyproject: &str, notes: &mut Vec<String>) -> (&'static str, Vec<String>) {
    const FILES: [&str; 4] =
        ["requirements.txt", "requirements-dev.txt", "requirements-test.txt", "requirements/test.txt"];
    let files: Vec<_> = FILES.into_iter().filter(|name| folder.has(name)).collect();
    if !files.is_empty() {
        return (
            "a Python project with requirements.txt",
            vec![format!("pip install -r {}", files.join(" -r "))],
        );
    }
    if pyproject.is_empty() {
        notes.push(
            "no file lists the dependencies: install them in place of \"pip install pytest\"".to_owned(),
        );
        return ("a Python project", commands(["pip install pytest"]));
    }
    let document: toml::Table = pyproject.parse().unwrap_or_default();
    let named = |table: Option<&toml::Value>| {
        let names = ["test", "tests", "testing", "dev"];
        table
            .and_then(toml::Value::as_table)
            .and_then(|table| names.into_iter().find(|name| table.contains_key(*name)))
    };
    let project = document.get("project").and_then(toml::Value::as_table);
    // Without a build system, pip falls back to setuptools, which may not find the project's packages.
    let groups = document.get("dependency-groups");
    let mut dependencies = Vec::new();
    if let Some(extra) = named(project.and_then(|project| project.get("optional-dependencies"))) {
        dependencies.push(format!("pip install '.[{extra}]'"));
    } else {
        dependencies.push("pip install .".to_owned());
        if let Some(group) = named(groups) {
            dependencies.push(format!("pip install --group {group}"));
        } else {
            notes.push(
                "pyproject.toml has no extra or group \"test\" or \"dev\": add the command that installs your test tools"
                    .to_owned(),
            );
            dependencies.push("pip install pytest".to_owned());
        }
    }
    ("a Python project with pyproject.toml", dependencies)
}

fn go(folder: &Folder) -> Option<Project> {
    folder.first_of(&["go.mod"])?;
    Some(Project {
        kind: "a Go project",
        image: "golang:1",
        github: SETUP_GO,
        dependencies: commands(["go mod download"]),
        command: "go test ./...".to_owned(),
        notes: Vec::new(),
    })
}

fn rust(folder: &Folder) -> Option<Project> {
    folder.first_of(&["Cargo.toml"])?;
    let locked = if folder.has("Cargo.lock") { " --locked" } else { "" };
    Some(Project {
        kind: "a Rust project",
        image: "rust:1",
        github: &[],
        dependencies: vec![format!("cargo test --no-run{locked}")],
        command: format!("cargo test{locked}"),
        notes: Vec::new(),
    })
}

fn java(folder: &Folder) -> Option<Project> {
    let build = folder.first_of(&["gradlew", "build.gradle.kts", "build.gradle", "mvnw", "pom.xml"])?;
    let (kind, image, dependency, command) = match build {
        "gradlew" => (
            "a Java project with Gradle's wrapper",
            "eclipse-temurin:21",
            "./gradlew testClasses",
            "./gradlew --no-daemon test",
        ),
        "mvnw" => (
            "a Java project with Maven's wrapper",
            "eclipse-temurin:21",
            "./mvnw -B -q test-compile",
            "./mvnw -B test",
        ),
        "pom.xml" => (
            "a Java project with Maven",
            "maven:3-eclipse-temurin-21",
            "mvn -B -q test-compile",
            "mvn -B test",
        ),
        _ => (
            "a Java project with Gradle",
            "gradle:8-jdk21",
            "gradle --no-daemon testClasses",
            "gradle --no-daemon test",
        ),
    };
    let mut notes = vec!["the version of Java".to_owned()];
    if command.contains("gradle") {
        notes.push(
            "Gradle passes tests the variables that it was started with, so stop a running daemon first"
                .to_owned(),
        );
    }
    let dependencies = commands([dependency]);
    Some(Project { kind, image, github: SETUP_JAVA, dependencies, command: command.to_owned(), notes })
}

fn ruby(folder: &Folder) -> Option<Project> {
    let manifest = folder.first_of(&["Gemfile", "Rakefile"])?;
    if manifest == "Rakefile" {
        return Some(Project {
            kind: "a Ruby project without Bundler",
            image: "ruby:3.3",
            github: SETUP_RUBY,
            dependencies: Vec::new(),
            command: "rake test".to_owned(),
            notes: vec!["there is no Gemfile: install the gems before the tests".to_owned()],
        });
    }
    let command = if folder.has("bin/rails") && !folder.has(".rspec") {
        "bundle exec rails test"
    } else if folder.has(".rspec") || folder.has("spec") {
        "bundle exec rspec"
    } else {
        "bundle exec rake test"
    };
    let mut notes = vec!["the version of Ruby".to_owned()];
    if !folder.has("Gemfile.lock") {
        notes.push("there is no Gemfile.lock: Bundler installs the newest gems that fit".to_owned());
    }
    Some(Project {
        kind: "a Ruby project with Bundler",
        image: "ruby:3.3",
        github: SETUP_RUBY,
        dependencies: commands(["bundle install"]),
        command: command.to_owned(),
        notes,
    })
}

fn elixir(folder: &Folder) -> Option<Project> {
    folder.first_of(&["mix.exs"])?;
    Some(Project {
        kind: "an Elixir project",
        image: "elixir:1.18",
        github: SETUP_ELIXIR,
        dependencies: commands(["mix local.hex --force", "mix local.rebar --force", "mix deps.get"]),
        command: "mix test".to_owned(),
        notes: vec!["the version of Elixir".to_owned()],
    })
}

fn php(folder: &Folder) -> Option<Project> {
    const MARKERS: [&str; 3] = ["composer.json", "phpunit.xml", "phpunit.xml.dist"];
    let has_tests = || folder.files().iter().any(|file| file.ends_with("Test.php"));
    let has_composer = folder.has("composer.json");
    if folder.first_of(&MARKERS).is_none() && !has_tests() {
        return None;
    }
    let has_configuration = folder.first_of(&["phpunit.xml", "phpunit.xml.dist"]).is_some();
    let arguments = if has_configuration || !folder.has("tests") { "" } else { " tests" };
    let command = if folder.has("artisan") {
        "php artisan test".to_owned()
    } else if has_composer {
        format!("vendor/bin/phpunit{arguments}")
    } else {
        format!("phpunit{arguments}")
    };
    let install = "composer install --no-interaction";
    Some(Project {
        kind: "a PHP project",
        image: "php:8.3",
        github: &[],
        dependencies: if has_composer { commands([install]) } else { Vec::new() },
        command,
        notes: vec!["the version of PHP; an image needs Composer and the extension pdo_pgsql".to_owned()],
    })
}

fn dotnet(folder: &Folder) -> Option<Project> {
    let is_project = |file: &String| {
        [".sln", ".slnx", ".csproj", ".fsproj"].iter().any(|extension| file.ends_with(extension))
    };
    folder.files().iter().find(|file| is_project(file) && file.matches('/').count() <= 2)?;
    Some(Project {
        kind: "a .NET project",
        image: "mcr.microsoft.com/dotnet/sdk:8.0",
        github: &[],
        dependencies: commands(["dotnet restore"]),
        command: "dotnet test".to_owned(),
        notes: vec!["the version of .NET".to_owned()],
    })
}

fn node(folder: &Folder) -> Option<Project> {
    folder.first_of(&["package.json"])?;
    let mut notes = Vec::new();
    let lock =
        folder.first_of(&["pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb", "package-lock.json"]);
    let (kind, dependencies, command) = match lock {
        Some("pnpm-lock.yaml") => (
            "a Node project with pnpm",
            commands(["npm install --global corepack", "corepack enable", "pnpm install --frozen-lockfile"]),
            "pnpm test",
        ),
        // A .yarnrc.yml means Yarn 2 or later, which needs a different option.
        Some("yarn.lock") => {
            let frozen = if folder.has(".yarnrc.yml") { "--immutable" } else { "--frozen-lockfile" };
            let install = format!("yarn install {frozen}");
            let commands = commands(["npm install --global corepack", "corepack enable", &install]);
            ("a Node project with Yarn", commands, "yarn test")
        }
        Some("package-lock.json") => ("a Node project with npm", commands(["npm ci"]), "npm test"),
        Some(_) => {
            notes.push(
                "bun installs the dependencies, but the tests run with Node: change it if they need bun"
                    .to_owned(),
            );
            let commands = commands(["npm install --global bun", "bun install --frozen-lockfile"]);
            ("a Node project with bun", commands, "npm test")
        }
        None => {
            notes.push("there is no lock file: npm installs the newest packages that fit".to_owned());
            ("a Node project without a lock file", commands(["npm install"]), "npm test")
        }
    };
    let command = node_tests(folder).unwrap_or_else(|| command.to_owned());
    Some(Project { kind, image: "node:22", github: SETUP_NODE, dependencies, command, notes })
}

/// Returns the command for a known test runner if `package.json` doesn't have a `test` script.
fn node_tests(folder: &Folder) -> Option<String> {
    const RUNNERS: [(&str, &str); 4] =
        [("vitest", "vitest run"), ("jest", "jest"), ("mocha", "mocha"), ("ava", "ava")];
    let package: serde_json::Value = serde_json::from_str(&folder.text("package.json")).ok()?;
    let script = package["scripts"]["test"].as_str().unwrap_or_default();
    if !script.is_empty() && !script.contains("no test specified") {
        return None;
    }
    let has =
        |name: &str| ["dependencies", "devDependencies"].iter().any(|key| package[key][name].is_string());
    let (_, command) = RUNNERS.into_iter().find(|(name, _)| has(name))?;
    Some(format!("{}{command}", node_launcher(folder)))
}

/// Returns the prefix for running a program installed by the project's Node package manager, such as `npx`.
pub(crate) fn node_launcher(folder: &Folder) -> &'static str {
    if folder.has("pnpm-lock.yaml") {
        "pnpm exec "
    } else if folder.has("yarn.lock") {
        "yarn "
    } else {
        "npx "
    }
}

/// Returns the fallback for a folder without any recognized file.
fn any(folder: &Folder) -> Project {
    let makefile = folder.first_of(&["GNUmakefile", "makefile", "Makefile"]);
    let has_tests = |name| folder.text(name).lines().any(makes_test);
    let command = if makefile.is_some_and(has_tests) { "make test" } else { UNKNOWN_COMMAND };
    let note = format!("the image, steps that install the dependencies, and the command \"{command}\"");
    Project {
        kind: "a project of a kind that pgfresh does not know",
        image: "debian:12",
        github: &[],
        dependencies: Vec::new(),
        command: command.to_owned(),
        notes: vec![note],
    }
}

/// Returns true if this makefile line is the rule for a target named `test`.
fn makes_test(line: &str) -> bool {
    let rule = line.split_once(':').filter(|(_, rest)| !rest.starts_with('='));
    rule.is_some_and(|(targets, _)| {
        !targets.starts_with(['\t', '#', '.']) && targets.split_whitespace().any(|target| target == "test")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Detects a project with these files. Returns the project's kind, its dependency installation commands and its
    /// test command.
    fn seen(files: &[(&str, &str)]) -> (&'static str, String, String) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let project = detect(folder.path());
        (project.kind, project.dependencies.join("; "), project.command)
    }

    #[test]
    fn python_steps_depend_on_package_manager() {
        let pyproject = "[project]\nname = \"a\"\n";
        assert_eq!(seen(&[("pyproject.toml", pyproject), ("uv.lock", "")]).2, "uv run pytest");
        assert_eq!(seen(&[("pyproject.toml", "[tool.poetry]\n")]).2, "poetry run pytest");
        assert_eq!(seen(&[("Pipfile", "")]).1, "pip install pipenv; pipenv sync --dev");
        let requirements = seen(&[("requirements.txt", ""), ("requirements-dev.txt", "")]);
        assert_eq!(requirements.1, "pip install -r requirements.txt -r requirements-dev.txt");
        let extra = format!("{pyproject}[project.optional-dependencies]\ndev = []\ntest = []\n");
        assert_eq!(seen(&[("pyproject.toml", &extra)]).1, "pip install '.[test]'");
        let group = format!("{pyproject}[dependency-groups]\ndev = []\n");
        assert_eq!(seen(&[("pyproject.toml", &group)]).1, "pip install .; pip install --group dev");
        assert_eq!(seen(&[("manage.py", "")]).2, "python manage.py test");
        assert_eq!(seen(&[("manage.py", ""), ("pytest.ini", "")]).2, "pytest");
    }

    #[test]
    fn node_steps_depend_on_package_manager() {
        let with = |name| seen(&[("package.json", "{}"), (name, "")]);
        assert!(with("pnpm-lock.yaml").1.ends_with("pnpm install --frozen-lockfile"));
        assert!(with("yarn.lock").1.ends_with("yarn install --frozen-lockfile"));
        let berry = seen(&[("package.json", "{}"), ("yarn.lock", ""), (".yarnrc.yml", "")]);
        assert_eq!(
            (berry.1.rsplit("; ").next(), berry.2.as_str()),
            (Some("yarn install --immutable"), "yarn test")
        );
        assert_eq!(with("package-lock.json").1, "npm ci");
        assert_eq!(with("bun.lockb").0, "a Node project with bun");
        assert_eq!(seen(&[("package.json", "{}")]).1, "npm install");
    }

    #[test]
    fn each_build_tool_has_its_own_command() {
        let command = |name| seen(&[(name, "")]).2;
        assert_eq!(command("gradlew"), "./gradlew --no-daemon test");
        assert_eq!(command("build.gradle.kts"), "gradle --no-daemon test");
        assert_eq!(command("mvnw"), "./mvnw -B test");
        assert_eq!(command("pom.xml"), "mvn -B test");
        assert_eq!(command("Gemfile"), "bundle exec rake test");
        assert_eq!(seen(&[("Gemfile", ""), ("spec/a_spec.rb", "")]).2, "bundle exec rspec");
        assert_eq!(seen(&[("Gemfile", ""), ("bin/rails", "")]).2, "bundle exec rails test");
        assert_eq!(seen(&[("Cargo.toml", ""), ("Cargo.lock", "")]).2, "cargo test --locked");
        assert_eq!(command("go.mod"), "go test ./...");
        assert_eq!(command("mix.exs"), "mix test");
    }

    #[test]
    fn a_makefile_counts_only_with_its_own_tests() {
        let command = |files: &[(&str, &str)]| seen(files).2;
        assert_eq!(command(&[("README", "")]), "your-test-command");
        for (makefile, expected) in [
            ("all: test\n", "your-test-command"),
            (".PHONY: test\n\ttest: x\n# test: x\ntest := 1\n", "your-test-command"),
            (".PHONY: test\ntest: build\n\tprove\n", "make test"),
            ("lint test::\n", "make test"),
        ] {
            for name in ["Makefile", "GNUmakefile"] {
                assert_eq!(command(&[(name, makefile)]), expected, "{makefile}");
            }
        }
    }
}
