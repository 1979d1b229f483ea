//! Tests that redacted literals in index definitions and expressions don't prevent a match with the template.

use plans::redact::Redaction;
use plans::{BoundStatement, PlanMode, Planner, Reason};

use super::production::Production;
use crate::common::on_every_major;

const SCHEMA: &str = "
CREATE TABLE users (id bigserial PRIMARY KEY, email text NOT NULL, mood text, k int, o text);
CREATE INDEX users_email ON users (lower(email)) WHERE email <> '';
CREATE INDEX users_co ON users ((coalesce(email, '')));
CREATE INDEX users_bad ON users (k) WHERE email = 'bounced@x';
CREATE INDEX users_sad ON users (id) WHERE mood = 'sad' AND k > 5;
CREATE INDEX users_before ON users ((coalesce(o, 'none')));";

/// Production names one index differently, and defines another one differently.
const ROWS: &str = "
ALTER INDEX users_before RENAME TO users_after;
INSERT INTO users (email, mood, k, o) SELECT CASE WHEN g % 100 = 0 THEN 'bounced@x' ELSE 'u' || g % 50000 || '@x' END, CASE WHEN g % 50 = 0 THEN 'sad' END,
       g % 1000, 'o' || g % 20000 FROM generate_series(1, 200000) g;
VACUUM ANALYZE;";

const DIFFERENT: &str = "DROP INDEX users_bad; CREATE INDEX users_bad ON users (k) WHERE email > 'bounced@x'";

const STATEMENTS: [&str; 3] = [
    "SELECT * FROM users WHERE coalesce(email, '') = 'u5@x'",
    "SELECT * FROM users WHERE lower(email) = 'u5@x' AND email <> ''",
    "SELECT * FROM users WHERE mood = 'sad' AND k > 5 AND id = 7",
];

on_every_major! {
    redacted_definitions_match
}

fn redacted_definitions_match(major: u32) {
    let mut production = Production::new(major, SCHEMA, ROWS);
    for words in [&[][..], &["all".to_owned()]] {
        let mut statistics = production.statistics();
        Redaction::parse(words).unwrap().apply(&mut statistics).unwrap();
        let (mut scratch, applied) = production.scratch(&statistics);
        assert_eq!(applied.left_out, [], "{words:?}");
        for text in STATEMENTS {
            let asked = BoundStatement { text: text.to_owned(), ..BoundStatement::default() };
            let plan = scratch.explain(&asked, PlanMode::Custom, &[], &[]).unwrap();
            let real = production.explain_json(text)[0]["Plan"]["Total Cost"].as_f64().unwrap();
            let cost = plan.root.total_cost;
            assert!((cost - real).abs() < 0.5 * real, "{text}: {cost}, and {real} on the data");
        }
    }
    production.session.query(DIFFERENT).unwrap();
    let mut statistics = production.statistics();
    Redaction::parse(&[]).unwrap().apply(&mut statistics).unwrap();
    let (_, applied) = production.scratch(&statistics);
    let [left_out] = &applied.left_out[..] else { panic!("{applied:#?}") };
    assert_eq!((left_out.object.as_str(), &left_out.reason), ("public.users_bad", &Reason::Definition));
}
