//! Tests frozen time: the recipe in docs/recipes.md freezes what its table promises, in one
//! database, until the reset.

use super::*;

/// Page with the recipe. This test runs its SQL and TOML blocks.
const PAGE: &str = include_str!("../../../../../docs/recipes.md");

/// Objects that migrations make before the recipe runs.
const SCHEMA: &str = "
CREATE TABLE orders (
    id serial PRIMARY KEY,
    placed timestamptz NOT NULL DEFAULT now(),
    due timestamptz DEFAULT CURRENT_TIMESTAMP + interval '1 day',
    day date DEFAULT CURRENT_DATE,
    checked timestamptz DEFAULT clock_timestamp()
);
CREATE VIEW late AS SELECT * FROM orders WHERE placed < now() - interval '1 hour';
CREATE FUNCTION is_late(o orders) RETURNS bool STABLE LANGUAGE sql
    AS 'SELECT o.placed < now() - interval ''1 hour''';
CREATE FUNCTION is_late_by_its_own_path(o orders) RETURNS bool STABLE LANGUAGE sql SET search_path = public
    AS 'SELECT o.placed < now() - interval ''1 hour''';
CREATE ROLE shop LOGIN;
GRANT ALL ON orders, orders_id_seq TO shop;
";

/// Returns the recipe's first block in `language`.
fn block(language: &str) -> &'static str {
    let (_, recipe) = PAGE.split_once("## Frozen time").expect("the recipe");
    let (_, block) = recipe.split_once(&format!("```{language}\n")).expect("a block");
    block.split_once("```").expect("its end").0
}

/// Builds a template with the recipe, runs a script in it, and returns the script's output.
fn in_template(major: u32, script: &str) -> String {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", block("toml"));
    scene.write("db/schema.sql", SCHEMA);
    scene.write("db/clock.sql", block("sql"));
    scene.shell(&["--postgres", &postgres(major)], script)
}

#[test]
fn frozen_time_covers_what_recipe_promises() {
    for major in majors() {
        let printed = in_template(
            major,
            r"psql -d one -XAtq -v ON_ERROR_STOP=1 <<'END'
SET timezone = 'UTC';
INSERT INTO clock.frozen VALUES ('2040-01-01 12:00+00');
SELECT 'calls', now(), transaction_timestamp(), statement_timestamp();
INSERT INTO orders DEFAULT VALUES RETURNING 'defaults', placed, due;
CREATE TABLE later (at timestamptz DEFAULT now());
INSERT INTO later DEFAULT VALUES RETURNING 'new table', at, 'later'::regclass = 'public.later'::regclass;
UPDATE clock.frozen SET instant = '2040-01-01 15:00+00';
SELECT 'function', is_late(orders) FROM orders;
SELECT 'not covered', CURRENT_TIMESTAMP < '2039-01-01', clock_timestamp() < '2039-01-01', localtimestamp < '2039-01-01',
    day < '2039-01-01', checked < '2039-01-01', is_late_by_its_own_path(orders), (SELECT count(*) FROM late) FROM orders;
END",
        );
        let expected = "calls|2040-01-01 12:00:00+00|2040-01-01 12:00:00+00|2040-01-01 12:00:00+00
defaults|2040-01-01 12:00:00+00|2040-01-02 12:00:00+00
new table|2040-01-01 12:00:00+00|t
function|t
not covered|t|t|t|t|t|f|0";
        assert_eq!(printed.trim(), expected, "PostgreSQL {major}");
    }
}

#[test]
fn frozen_time_ends_with_the_test() {
    for major in majors() {
        let script = r#"ask() { psql -XAtqc "SELECT now() > '2039-01-01'" "$@"; }
psql -d one -Xqc "INSERT INTO clock.frozen VALUES ('2040-01-01')"
ask -d one; ask -d one -U shop; ask -d two
PGFRESH reset one && ask -d one"#;
        let printed =
            in_template(major, &script.replace("PGFRESH", &ground::program().display().to_string()));
        assert_eq!(
            printed.split_whitespace().collect::<Vec<_>>(),
            ["t", "t", "f", "f"],
            "PostgreSQL {major}"
        );
    }
}
