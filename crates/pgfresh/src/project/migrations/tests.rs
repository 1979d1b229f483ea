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
