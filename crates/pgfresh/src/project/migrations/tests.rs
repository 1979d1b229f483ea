use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A generated project with the steps that init must find.
#[derive(Debug, Clone)]
struct Case {
    tool: &'static str,
    files: Vec<(String, String)>,
    setup: Option<String>,
    /// Patterns that must be among the inputs or SQL files.
    patterns: Vec<String>,
}

impl Case {
    fn new(tool: &'static str, setup: impl Into<String>, files: &[(&str, &str)], patterns: &[&str]) -> Self {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let setup = Some(setup.into()).filter(|setup: &String| !setup.is_empty());
        Self { tool, files, setup, patterns }
    }

    fn check(&self, folder: &Folder) {
        let found = detect(folder);
        let first = found.first().unwrap_or_else(|| panic!("nothing found: {self:?}"));
        assert_eq!(first.tool, self.tool, "{found:?}\n{self:?}");
        let (setup, patterns) = match &first.steps {
            Steps::Command { setup, inputs } => (Some(setup.clone()), inputs),
            Steps::Sql(files) => (None, files),
        };
        assert_eq!(setup, self.setup, "{self:?}");
        for pattern in &self.patterns {
            assert!(patterns.contains(pattern), "{pattern} is not among {patterns:?}: {self:?}");
        }
        for pattern in patterns {
            assert!(!template::matching_files(folder.path(), pattern).is_empty(), "{pattern}: {self:?}");
        }
    }
}

/// Returns Python projects.
fn python(name: &str, place: &str) -> Vec<Case> {
    let revision = &*format!("{place}/versions/1_{name}.py");
    let environment = &*format!("{place}/env.py");
    let ini = &*format!("[alembic]\nscript_location = %(here)s/{place}\n");
    let import = &*format!("from {name}.models import Base\nurl = os.environ['DATABASE_URL']\n");
    let package = &*format!("src/{name}/models.py");
    let settings =
        &*format!("import django\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', '{name}.settings')\n");
    vec![
        Case::new(
            "Alembic",
            "alembic upgrade head",
            &[
                ("alembic.ini", ini),
                (revision, ""),
                (environment, import),
                (package, ""),
                ("requirements.txt", ""),
            ],
            &[&format!("{place}/**"), "alembic.ini", &format!("src/{name}/**/*.py")],
        ),
        Case::new(
            "Alembic",
            "cd backend && uv run alembic upgrade head",
            &[
                ("backend/alembic.ini", ini),
                (&format!("backend/{revision}"), ""),
                (&format!("backend/{environment}"), import),
                ("uv.lock", ""),
            ],
            &[&format!("backend/{place}/**"), "backend/alembic.ini"],
        ),
        Case::new(
            "Django",
            "poetry run python manage.py migrate",
            &[
                ("manage.py", settings),
                (&format!("{name}/settings.py"), ""),
                (&format!("{name}/migrations/0001_initial.py"), ""),
                ("poetry.lock", ""),
            ],
            &["manage.py", &format!("{name}/settings.py"), "**/migrations/*.py"],
        ),
    ]
}

/// Returns Ruby, Elixir and PHP projects.
fn frameworks(name: &str) -> Vec<Case> {
    vec![
        Case::new(
            "Rails",
            "RAILS_ENV=test bin/rails db:schema:load",
            &[
                ("bin/rails", ""),
                ("Gemfile", ""),
                ("db/schema.rb", ""),
                (&format!("db/migrate/1_{name}.rb"), ""),
            ],
            &["db/schema.rb"],
        ),
        Case::new(
            "Rails",
            "RAILS_ENV=test bundle exec rails db:schema:load",
            &[("config/application.rb", ""), ("Gemfile", ""), ("db/structure.sql", "")],
            &["db/structure.sql"],
        ),
        Case::new(
            "Ecto",
            "MIX_ENV=test mix ecto.migrate",
            &[
                ("mix.exs", "{:ecto_sql, \"~> 3.10\"}"),
                (&format!("priv/repo/migrations/1_{name}.exs"), ""),
                ("config/test.exs", ""),
            ],
            &["priv/repo/migrations/**", "config/**"],
        ),
        Case::new(
            "Laravel",
            "DB_CONNECTION=pgsql DB_URL=\"$DATABASE_URL\" php artisan migrate --force",
            &[("artisan", ""), ("composer.json", "{}"), (&format!("database/migrations/1_{name}.php"), "")],
            &["database/migrations/**"],
        ),
    ]
}

/// Returns Java projects.
fn java(name: &str, place: &str) -> Vec<Case> {
    let url = "-url=\"jdbc:postgresql://$PGHOST:$PGPORT/$PGDATABASE\"";
    let versioned = &*format!("{place}/V1__{name}.sql");
    vec![
        Case::new(
            "Flyway",
            format!("flyway {url} -user=\"$PGUSER\" -password=\"$PGPASSWORD\" migrate"),
            &[("flyway.conf", ""), (versioned, "")],
            &["flyway.conf", &format!("{place}/**")],
        ),
        Case::new(
            "Flyway",
            "",
            &[
                ("pom.xml", "<artifactId>flyway-core</artifactId>"),
                (&format!("src/main/resources/db/migration/V001__{name}.sql"), ""),
                ("src/main/resources/db/migration/V002__more.sql", ""),
            ],
            &["src/main/resources/db/migration/V*.sql"],
        ),
        Case::new(
            "Liquibase",
            format!(
                "liquibase --changelog-file={place}/db.changelog-master.yaml -{url} --username=\"$PGUSER\" --password=\"$PGPASSWORD\" update"
            ),
            &[(&format!("{place}/db.changelog-master.yaml"), ""), (&format!("{place}/{name}.sql"), "")],
            &[&format!("{place}/**")],
        ),
    ]
}

/// Returns JavaScript projects.
fn javascript(name: &str, place: &str) -> Vec<Case> {
    vec![
        Case::new(
            "Prisma",
            "npx prisma migrate deploy",
            &[
                ("package.json", "{}"),
                ("prisma/schema.prisma", "datasource db {\n  provider = \"postgresql\"\n}\n"),
                (&format!("prisma/migrations/1_{name}/migration.sql"), ""),
            ],
            &["prisma/**"],
        ),
        Case::new(
            "Drizzle",
            "pnpm exec drizzle-kit migrate",
            &[
                ("package.json", "{}"),
                ("pnpm-lock.yaml", ""),
                (
                    "drizzle.config.ts",
                    &format!("export default {{ dialect: 'postgresql', out: './{place}' }}"),
                ),
                (&format!("{place}/0000_{name}.sql"), ""),
            ],
            &[&format!("{place}/**"), "drizzle.config.ts"],
        ),
        Case::new(
            "Knex",
            "yarn knex migrate:latest",
            &[
                ("package.json", "{}"),
                ("yarn.lock", ""),
                (
                    "knexfile.ts",
                    &format!("migrations: {{ directory: \"./{place}\" }}, url: process.env.DATABASE_URL"),
                ),
                (&format!("{place}/001_{name}.ts"), ""),
            ],
            &[&format!("{place}/**"), "knexfile.ts", "yarn.lock"],
        ),
        Case::new(
            "Sequelize",
            "npx sequelize-cli db:migrate",
            &[
                ("package.json", "{\"devDependencies\": {\"sequelize-cli\": \"6\"}}"),
                (&format!("migrations/1-{name}.js"), ""),
            ],
            &["migrations/**"],
        ),
        Case::new(
            "a script of package.json",
            "npm run db:migrate",
            &[
                ("package.json", "{\"scripts\": {\"db:migrate\": \"x\"}}"),
                (&format!("{place}/1_{name}.ts"), ""),
            ],
            &[],
        ),
    ]
}

/// Returns projects with a tool for SQL migrations.
fn sql_tools(name: &str, place: &str) -> Vec<Case> {
    let file = &*format!("{place}/00001_{name}.sql");
    let all = &*format!("{place}/*.sql");
    vec![
        Case::new(
            "goose",
            format!("goose -dir {place} postgres \"$DATABASE_URL\" up"),
            &[("go.mod", ""), (file, "-- +goose Up\nSELECT 1;\n")],
            &[all],
        ),
        Case::new(
            "golang-migrate",
            format!("migrate -path {place} -database \"$DATABASE_URL?sslmode=disable\" up"),
            &[
                ("go.mod", ""),
                (&format!("{place}/1_{name}.up.sql"), ""),
                (&format!("{place}/1_{name}.down.sql"), ""),
            ],
            &[all],
        ),
        Case::new(
            "dbmate",
            "dbmate --no-dump-schema --url \"$DATABASE_URL?sslmode=disable\" migrate",
            &[(&format!("db/migrations/1_{name}.sql"), "-- migrate:up\n-- migrate:down\n")],
            &["db/migrations/*.sql"],
        ),
        Case::new(
            "sqlx",
            "sqlx migrate run",
            &[
                ("Cargo.toml", "[dependencies]\nsqlx = \"0.8\"\n"),
                ("src/lib.rs", "sqlx::migrate!().run(&pool)"),
                (&format!("migrations/1_{name}.sql"), ""),
            ],
            &["migrations/*.sql"],
        ),
        Case::new(
            "sqlx",
            "",
            &[("Cargo.toml", "sqlx = \"0.8\""), (&format!("migrations/1_{name}.sql"), "")],
            &["migrations/*.sql"],
        ),
        Case::new(
            "its own command",
            "go run . migrate",
            &[
                ("go.mod", ""),
                ("main.go", "case \"migrate\":"),
                (&format!("{place}/1_{name}.sql"), "-- +goose Up"),
            ],
            &["*.go", "go.mod"],
        ),
    ]
}

/// Returns a Diesel project, and projects with SQL files but without a tool.
fn sql_files(name: &str) -> Vec<Case> {
    vec![
        Case::new(
            "Diesel",
            "diesel migration run",
            &[("diesel.toml", ""), ("migrations/1_a/up.sql", "")],
            &["migrations/**"],
        ),
        Case::new("SQL", "", &[("db/001.sql", ""), (&format!("db/002_{name}.sql"), "")], &["db/*.sql"]),
        Case::new(
            "SQL",
            "",
            &[("sql/1.sql", ""), ("sql/2.sql", ""), ("sql/10.sql", "")],
            &["sql/1.sql", "sql/2.sql", "sql/10.sql"],
        ),
        Case::new("SQL", "", &[("schema.sql", ""), (&format!("tests/{name}.sql"), "")], &["schema.sql"]),
        Case::new("SQL", "", &[("db/schema.sql", ""), ("db/seed.sql", "")], &["db/schema.sql"]),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let name = "[a-z]{3,8}x";
    let place = prop::sample::select(vec![
        "migrations",
        "db/migrations",
        "my migrations",
        "internal/db/migrations",
        "m[1]/migrations",
    ]);
    (name, place, any::<prop::sample::Index>()).prop_map(|(name, place, index)| {
        // A path with special characters would need quotes in a shell command and escapes in a pattern.
        let plain = if place.contains(['[', ' ']) { "migrations" } else { place };
        let cases = [
            python(&name, plain),
            frameworks(&name),
            java(&name, plain),
            javascript(&name, plain),
            sql_tools(&name, plain),
            sql_files(&name),
        ]
        .concat();
        let index = index.index(cases.len());
        cases.into_iter().nth(index).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn migrations_of_each_tool_are_found(
        (case, files) in case().prop_flat_map(|case| {
            let files = Just(case.files.clone()).prop_shuffle();
            (Just(case), files)
        }),
        noise in prop::sample::subsequence(
            vec!["README.md", ".github/workflows/x.yml", "docs/notes.sql", "node_modules/p/migrations/1.sql", "web/index.html",
                 "tests/fixtures/1.sql", ".git/HEAD", "target/migrations/1.sql"],
            0..8,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for file in noise {
            write(folder.path(), file, "");
        }
        for (file, text) in &files {
            write(folder.path(), file, text);
        }
        case.check(&Folder::new(folder.path()));
    }

    #[test]
    fn any_files_are_searched_without_panic(
        files in prop::collection::vec(
            (prop::sample::select(vec![
                "manage.py", "alembic.ini", "pyproject.toml", "package.json", "prisma/schema.prisma", "drizzle.config.ts", "knexfile.js",
                "pom.xml", "liquibase.properties", "mix.exs", "go.mod", "main.go", "Cargo.toml", "src/main.rs", "a/V1__.sql", "db/é.sql",
                "m/1.up.sql", "build.gradle", "flyway.conf", "migrations/[x]/{1}.sql",
            ]), "[ -~\\né]{0,80}"),
            0..8,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in &files {
            write(folder.path(), file, text);
        }
        let folder = Folder::new(folder.path());
        for migrations in detect(&folder) {
            for pattern in migrations.steps.patterns() {
                prop_assert!(!template::matching_files(folder.path(), pattern).is_empty(), "{pattern}");
            }
        }
    }
}

#[test]
fn special_characters_in_paths_are_quoted() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "m [1]/migrations/1.sql", "-- +goose Up\n");
    let found = detect(&Folder::new(folder.path()));
    let Steps::Command { setup, inputs } = &found[0].steps else { panic!("{found:?}") };
    assert_eq!(setup, "goose -dir 'm [1]/migrations' postgres \"$DATABASE_URL\" up");
    assert_eq!(inputs[..], ["m [[]1[]]/migrations/*.sql"]);
}

#[test]
fn other_databases_are_left_alone() {
    for (file, text) in [
        ("prisma/schema.prisma", "provider = \"sqlite\""),
        ("drizzle.config.ts", "export default { dialect: 'sqlite', out: './drizzle' }"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), file, text);
        assert!(detect(&Folder::new(folder.path())).is_empty(), "{file}");
    }
}

/// Detects the first tool in a project with these files. Returns its setup, its patterns and its notes.
fn detected(files: &[(&str, &str)]) -> (String, Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        write(folder.path(), file, text);
    }
    let found = detect(&Folder::new(folder.path())).into_iter().next().unwrap_or_else(|| panic!("{files:?}"));
    let setup = match &found.steps {
        Steps::Command { setup, .. } => setup.clone(),
        Steps::Sql(_) => String::new(),
    };
    (setup, found.steps.patterns().to_vec(), found.notes.join(" "))
}

/// Alembic's own `env.py`, without its longer comments.
const STOCK_ENVIRONMENT: &str = "from sqlalchemy import engine_from_config\nfrom alembic import context\n# other values, defined by the settings of env.py\n\
    config = context.config\ndef run_migrations_offline():\n    url = config.get_main_option(\"sqlalchemy.url\")\n    context.configure(url=url)\n\
    def run_migrations_online():\n    connectable = engine_from_config(config.get_section(config.config_ini_section, {}), prefix=\"sqlalchemy.\")\n";

#[test]
fn fixed_address_of_any_tool_is_noted() {
    let ini = (
        "alembic.ini",
        "[alembic]\nscript_location = alembic\nsqlalchemy.url = postgresql://a:b@localhost:5432/app\n",
    );
    let note = |environment: &str| detected(&[ini, ("alembic/env.py", environment)]).2;
    let stock = STOCK_ENVIRONMENT;
    assert!(note(stock).contains("alembic/env.py must connect to DATABASE_URL"));
    assert!(note(&stock.replace("engine_from", "async_engine_from")).contains("alembic/env.py must"));
    let project = ("pyproject.toml", "[tool.alembic]\nscript_location = \"%(here)s/alembic\"\n");
    let ini_with_url = ("alembic.ini", "[alembic]\nsqlalchemy.url = postgresql://a:b@localhost:5432/app\n");
    let (setup, inputs, said) = detected(&[project, ini_with_url, ("alembic/env.py", stock)]);
    assert_eq!((setup.as_str(), said.is_empty()), ("alembic upgrade head", false));
    assert_eq!(inputs, ["alembic/**", "pyproject.toml", "alembic.ini"]);
    for line in [
        "config.set_main_option('sqlalchemy.url', url())",
        "section['sqlalchemy.url'] = os.environ[\"DB\"]",
        "connectable = create_engine(settings.url)",
    ] {
        assert_eq!(note(&format!("{stock}{line}\n")), "", "{line}");
    }
    let manage = ("manage.py", "django 'DJANGO_SETTINGS_MODULE', 'shop.settings'");
    let django = |host: &str| {
        let text = format!("'ENGINE': 'django.db.backends.postgresql', 'HOST': {host}, 'PORT': '5432'");
        detected(&[manage, ("shop/settings.py", &text)]).2
    };
    assert!(django("'localhost'").starts_with("shop/settings.py must take the database's host"));
    assert_eq!((django("''"), django("os.environ['PGHOST']")), (String::new(), String::new()));
    let knex = |development: &str, test: &str| {
        let text = format!(
            "module.exports = {{ development: {{ connection: {development} }}, test: {{ connection: {test} }} }};"
        );
        let (setup, _, note) =
            detected(&[("package.json", "{}"), ("knexfile.js", &text), ("migrations/1.js", "")]);
        (setup, !note.is_empty())
    };
    let (fixed, variable) = ("'postgres://localhost/dev'", "process.env.DATABASE_URL");
    assert_eq!(knex(fixed, variable), ("npx knex migrate:latest --env test".to_owned(), false));
    assert_eq!(knex(variable, fixed), ("npx knex migrate:latest".to_owned(), false));
    assert_eq!(knex(fixed, fixed), ("npx knex migrate:latest".to_owned(), true));
}

#[test]
fn knexfile_of_subfolder_is_found() {
    let files = [("db/knexfile.js", "directory: './steps'"), ("db/steps/1.js", "")];
    let (setup, inputs, _) = detected(&files);
    assert_eq!(setup, "npx knex migrate:latest --knexfile db/knexfile.js");
    assert_eq!(inputs, ["db/steps/**", "db/knexfile.js"]);
    for more in [("db/package.json", "{}"), ("db/knexfile.js", "client: 'mysql2'")] {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [files[0], files[1], more] {
            write(folder.path(), file, text);
        }
        assert!(detect(&Folder::new(folder.path())).is_empty(), "{more:?}");
    }
}

#[test]
fn launcher_of_subfolder_precedes_root() {
    let ini = ("backend/alembic.ini", "[alembic]\nscript_location = alembic\n");
    let setup = |lock: &str| detected(&[ini, ("backend/pyproject.toml", ""), (lock, "")]).0;
    assert_eq!(setup("backend/uv.lock"), "cd backend && uv run alembic upgrade head");
    assert_eq!(setup("backend/poetry.lock"), "cd backend && poetry run alembic upgrade head");
    assert_eq!(setup("uv.lock"), "cd backend && uv run alembic upgrade head");
}

#[test]
fn only_manage_py_below_is_found() {
    let manage = ("backend/manage.py", "django 'DJANGO_SETTINGS_MODULE', 'shop.settings'");
    let settings =
        ("backend/shop/settings.py", "'ENGINE': 'django.db.backends.postgresql', 'HOST': 'localhost'");
    let migration = ("backend/app/migrations/0001_initial.py", "");
    let files = [("pyproject.toml", "[tool.poetry]"), manage, settings, migration];
    let (setup, inputs, note) = detected(&files);
    assert_eq!(setup, "cd backend && poetry run python manage.py migrate");
    assert_eq!(inputs, ["backend/manage.py", "backend/shop/settings.py", "backend/**/migrations/*.py"]);
    assert!(note.starts_with("backend/shop/settings.py must take"), "{note}");
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files.into_iter().chain([("other/manage.py", "django")]) {
        write(folder.path(), file, text);
    }
    assert!(detect(&Folder::new(folder.path())).is_empty(), "two projects");
}

#[test]
fn imported_settings_modules_are_inputs() {
    let (_, inputs, _) = detected(&[
        ("manage.py", "django 'DJANGO_SETTINGS_MODULE', 'shop.settings.local'"),
        (
            "shop/settings/local.py",
            "from .base import *\nfrom . import keys, nothing\nfrom ..tools import x\nimport os\n",
        ),
        ("shop/settings/base.py", "from shop.settings.local import A\nfrom shop.more import (B)\n"),
        ("shop/settings/keys.py", ""),
        ("shop/tools/__init__.py", ""),
        ("shop/more.py", ""),
        ("shop/views.py", ""),
    ]);
    let settings = ["local.py", "base.py", "keys.py"].map(|name| format!("shop/settings/{name}"));
    let others = ["manage.py", "shop/more.py", "shop/tools/__init__.py"].map(str::to_owned);
    let mut expected = [settings, others].concat();
    let mut inputs = inputs;
    expected.sort();
    inputs.sort();
    assert_eq!(inputs, expected);
}

#[test]
fn files_that_undo_migrations_do_not_run() {
    for (files, expected) in [
        (&["001_a_up.sql", "001_a_down.sql", "002_b_up.sql", "002_b_down.sql"][..], &["*_up.sql"][..]),
        (&["1-a-up.sql", "1-a-down.sql"], &["*-up.sql"]),
        (&["1_a.sql", "1_a.down.sql", "2_b.sql"], &["1_a.sql", "2_b.sql"]),
        (&["1_a.sql", "1_a_rollback.sql"], &["1_a.sql"]),
        (&["1_slowdown.sql", "2_b.sql"], &["*.sql"]),
    ] {
        let files: Vec<_> = files.iter().map(|file| format!("migrations/{file}")).collect();
        let files: Vec<_> = files.iter().map(|file| (file.as_str(), "")).collect();
        let expected: Vec<_> = expected.iter().map(|pattern| format!("migrations/{pattern}")).collect();
        assert_eq!(detected(&files).1, expected);
    }
    let in_one = |text: &str| detected(&[("migrations/1.sql", text)]);
    assert_eq!(in_one("-- +migrate Up\n-- +migrate Down\n").0, "sql-migrate up");
    let tern = "tern migrate --migrations migrations --conn-string \"$DATABASE_URL\"";
    assert_eq!(in_one("create table a();\n---- create above / drop below ----\n").0, tern);
    for text in ["--- Down", "-- @UNDO", "# --- !Downs", "-- rambler down"] {
        assert!(in_one(text).2.contains("migrations/1.sql has a part that undoes"), "{text}");
    }
    assert_eq!(in_one("-- The server must not slow down.\n-- Add a table\n").2, "");
}

#[test]
fn repeatable_migrations_of_flyway_run_last() {
    let files = [("db/V1__a.sql", ""), ("db/R__view.sql", ""), ("db/V2__b.sql", "")];
    assert_eq!(detected(&files).1, ["db/V*.sql", "db/R__*.sql"]);
    assert_eq!(detected(&files[..1]).1, ["db/V*.sql"]);
}

#[test]
fn files_included_by_psql_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        (
            "db/schema.sql",
            "\\i db/parts/a.sql\n\\copy a from 'db/data/a.csv' csv\n\\i nothing.sql\n\\copy a to 'out'\n\\i /etc/passwd\n",
        ),
        ("db/parts/a.sql", "\\ir b.sql\n\\ir a.sql\n\\i ../x\n"),
        ("db/parts/b.sql", "\\include 'db/my file.sql'\n"),
        ("db/my file.sql", ""),
        ("db/data/a.csv", ""),
    ] {
        write(folder.path(), file, text);
    }
    let found = included(&Folder::new(folder.path()), &["db/schema.sql".to_owned()]);
    assert_eq!(found, ["db/data/a.csv", "db/my file.sql", "db/parts/a.sql", "db/parts/b.sql"]);
}

#[test]
fn push_option_depends_on_prisma_version() {
    let schema = ("prisma/schema.prisma", "datasource db { provider = \"postgresql\" }");
    let setup = |version: &str| {
        let package = format!("{{\"devDependencies\": {{\"prisma\": \"{version}\"}}}}");
        detected(&[schema, ("package.json", &package)]).0
    };
    assert_eq!(setup("^6.2.0"), "npx prisma db push --skip-generate");
    assert_eq!(
        (setup("~7.10.1"), setup("latest")),
        ("npx prisma db push".to_owned(), "npx prisma db push".to_owned())
    );
    let installed = ("node_modules/prisma/package.json", "{\"version\": \"5.0.0\"}");
    assert_eq!(detected(&[schema, installed]).0, "npx prisma db push --skip-generate");
}
