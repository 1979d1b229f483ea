//! Tests the locks of a suite's statements, except for those that the tests with two sessions cover.

use migrations::LockMode;
use migrations::suite::{LockReason, StatementNeeds, needs, unseen};
use plans::{BoundStatement, BoundValue, SuiteStatement};

use super::blocking::{Database, SCHEMA, suite};
use crate::common::on_every_major;

on_every_major! {
    values_roles_and_paths_of_clients_count
    locks_in_functions_are_said_to_be_unknown
    partitions_of_other_values_are_named
}

const FUNCTIONS: &str = "
    CREATE FUNCTION price(bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS 'BEGIN RETURN 1; END';
    CREATE TRIGGER touched BEFORE UPDATE OF note ON orders FOR EACH ROW EXECUTE FUNCTION touch();
    CREATE TRIGGER refunded AFTER DELETE ON refunds FOR EACH ROW EXECUTE FUNCTION touch();
    CREATE TRIGGER quiet AFTER INSERT ON drafts FOR EACH ROW EXECUTE FUNCTION touch();
    ALTER TABLE drafts DISABLE TRIGGER quiet;
    CREATE VIEW prices AS SELECT price(id) FROM products";

/// Returns the locks as lines.
fn locks(need: &StatementNeeds) -> Vec<String> {
    assert_eq!(need.error, None, "{}", need.statement);
    let lock = |lock: &migrations::suite::NeededLock| {
        let reason =
            if lock.reason == LockReason::Statement { String::new() } else { format!(" {}", lock.reason) };
        format!("{} {}{reason}", lock.relation.name, lock.mode)
    };
    need.locks.iter().map(lock).collect()
}

fn statement(text: &str, parameters: Vec<BoundValue>, settings: &[(&str, &str)]) -> SuiteStatement {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let statement = BoundStatement { text: text.to_owned(), parameters, prepared_runs: 0, settings };
    SuiteStatement { statement, normalized: text.to_owned(), ..SuiteStatement::default() }
}

fn values_roles_and_paths_of_clients_count(major: u32) {
    let more = "CREATE SCHEMA tenant; CREATE TABLE tenant.orders (status text); CREATE TABLE tenant.\"Odd \" (id serial)";
    let database = Database::new(major, &format!("{SCHEMA}; {more}"));
    let binary = |type_oid, value: &[u8]| BoundValue { type_oid, format: 1, value: Some(value.to_vec()) };
    let statements = [
        statement("SELECT id FROM secrets", Vec::new(), &[("role", "reader")]),
        statement("SELECT status FROM orders", Vec::new(), &[("search_path", "tenant")]),
        statement("INSERT INTO \"Odd \" DEFAULT VALUES", Vec::new(), &[("search_path", "tenant")]),
        // The driver has asked for the types, so it has sent a value whose size isn't that of bigint.
        statement("SELECT kind FROM events_2025 WHERE id = $1", vec![binary(0, &[0, 0, 0, 1])], &[]),
        // In another template, the type had this OID.
        statement("SELECT mood FROM people WHERE mood = $1", vec![binary(99_999, b"good")], &[]),
        statement("SELECT id FROM products WHERE id = $1 AND code = $2", Vec::new(), &[]),
        statement("COPY drafts (id) FROM STDIN", Vec::new(), &[]),
    ];
    let mut needs = needs(&mut database.session(), &statements).unwrap();
    needs.sort_by_key(|need| statements.iter().position(|one| one.normalized == need.statement));
    let of = needs.iter().map(locks).collect::<Vec<_>>();
    assert_eq!(of[0], ["people ACCESS SHARE", "secrets ACCESS SHARE"]);
    assert_eq!(
        (of[1].as_slice(), needs[1].locks[0].relation.schema.as_str()),
        (&["orders ACCESS SHARE".to_owned()][..], "tenant")
    );
    assert_eq!(of[2], ["Odd  ROW EXCLUSIVE", "Odd _id_seq ROW EXCLUSIVE"]);
    assert!(of[3].contains(&"events_2025_pkey ACCESS SHARE".to_owned()), "{:?}", of[3]);
    assert_eq!(of[4], ["people ACCESS SHARE"]);
    assert_eq!(of[5], ["products ACCESS SHARE", "products_code ACCESS SHARE", "products_pkey ACCESS SHARE"]);
    assert_eq!(of[6], ["drafts ROW EXCLUSIVE"]);
}

fn locks_in_functions_are_said_to_be_unknown(major: u32) {
    let database = Database::new(major, &format!("{SCHEMA}; {FUNCTIONS}"));
    let cases = [
        ("SELECT * FROM prices", &["the function price"][..]),
        ("UPDATE orders SET note = 'a'", &["the trigger touched"]),
        ("UPDATE orders SET status = 'a'", &[]),
        // The delete also removes the order's lines and refunds.
        ("DELETE FROM orders WHERE id = 1", &["the trigger refunded"]),
        ("INSERT INTO drafts VALUES (1)", &[]),
        ("SELECT lower('price(')", &[]),
    ];
    let texts: Vec<_> = cases.iter().map(|(text, _)| *text).collect();
    let mut statements = suite(&texts.join("; "));
    statements.push(statement("SELECT * FROM made_by_the_test", Vec::new(), &[]));
    let needs = needs(&mut database.session(), &statements).unwrap();
    for (text, names) in cases {
        let need = needs.iter().find(|need| need.statement == text).unwrap();
        assert_eq!(need.unseen, names, "{text}");
    }
    assert_eq!(
        unseen(&needs),
        [
            "1 statement of the suite, which PostgreSQL does not explain: SELECT * FROM made_by_the_test (relation \"made_by_the_test\" does not exist)",
            "locks in functions: 3 statements of the suite run the function price, the trigger refunded, the trigger touched",
        ]
    );
}

fn partitions_of_other_values_are_named(major: u32) {
    let database = Database::new(major, SCHEMA);
    let texts = [
        "INSERT INTO events VALUES (9, '2026-01-01')",
        "SELECT kind FROM events WHERE at = '2026-01-01' AND id = 1",
        "INSERT INTO events_2025 VALUES (9, '2025-01-01')",
    ];
    let needs = needs(&mut database.session(), &suite(&texts.join("; "))).unwrap();
    let of = |text: &str| needs.iter().find(|need| need.statement == text).unwrap();
    let has = |text: &str, relation: &str, mode: LockMode, reason: &LockReason| {
        of(text)
            .locks
            .iter()
            .any(|lock| (lock.relation.name.as_str(), lock.mode, &lock.reason) == (relation, mode, reason))
    };
    let (certain, other) = (LockReason::Statement, LockReason::Partition);
    assert!(has(texts[0], "events", LockMode::RowExclusive, &certain), "{:?}", of(texts[0]));
    assert!(has(texts[0], "events_rest", LockMode::RowExclusive, &other), "{:?}", of(texts[0]));
    assert!(has(texts[1], "events_2026", LockMode::AccessShare, &certain), "{:?}", of(texts[1]));
    assert!(has(texts[1], "events_2025", LockMode::AccessShare, &other), "{:?}", of(texts[1]));
    assert!(has(texts[2], "events", LockMode::AccessShare, &certain), "{:?}", of(texts[2]));
    assert!(!of(texts[2]).locks.iter().any(|lock| lock.relation.name == "events_2026"), "{:?}", of(texts[2]));
}
