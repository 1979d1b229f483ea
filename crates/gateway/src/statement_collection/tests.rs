use std::time::Instant;

use pgwire::{StatementEvent, StatementTracker, encode};

use super::*;

/// A session whose server responds to each client message.
struct Session {
    tracker: StatementTracker,
    collector: SessionCollector,
}

impl Session {
    fn new(collection: &Arc<StatementCollection>, database: &str) -> Self {
        let params = StartupParams::new([("user", "postgres")]);
        let collector = collection.session(database, "app".to_owned(), &params);
        Self { tracker: StatementTracker::with_values(), collector }
    }

    fn exchange(&mut self, client: &[u8], server: &[u8]) {
        let Self { tracker, collector } = self;
        let mut emit = |event| {
            if let StatementEvent::Completed(done) = event {
                collector.add(&done);
            }
        };
        tracker.observe_client(client, Instant::now(), &mut emit);
        tracker.observe_server(server, Instant::now(), &mut emit);
    }

    /// Sends a Query. `status` is the transaction status afterwards.
    fn query_in(&mut self, sql: &str, status: u8) {
        let answer = [encode(b'C', b"SELECT 1\0"), encode(b'Z', &[status])].concat();
        self.exchange(&encode(b'Q', format!("{sql}\0").as_bytes()), &answer);
    }

    fn query(&mut self, sql: &str) {
        self.query_in(sql, b'I');
    }

    fn fail(&mut self, sql: &str, status: u8) {
        let answer = [encode(b'E', b"C23505\0Mtwice\0\0"), encode(b'Z', &[status])].concat();
        self.exchange(&encode(b'Q', format!("{sql}\0").as_bytes()), &answer);
    }
}

fn texts(statement: &CollectedStatement) -> Vec<&str> {
    statement.runs.iter().map(|run| run.text.as_str()).collect()
}

#[test]
fn statements_are_split_and_grouped_with_their_tests() {
    let collection = Arc::<StatementCollection>::default();
    let (mut one, mut two) = (Session::new(&collection, "one"), Session::new(&collection, "two"));
    one.query("BEGIN; SELECT * FROM t WHERE a = 1; COMMIT");
    collection.test_ended("one", Some("test_one"));
    one.query("SELECT * FROM t WHERE a = 1");
    two.query("SELECT  * FROM t WHERE a = 2;");
    two.query("DECLARE c CURSOR FOR SELECT 'a' FROM u");
    two.query(
        "COPY (SELECT 'b' FROM u) TO STDOUT; CREATE TABLE v (); EXECUTE p; FETCH c; COPY u (a) FROM STDIN",
    );
    let CollectedStatements { statements, utilities, sql_executions, unread, .. } = collection.finish();
    assert_eq!((utilities, sql_executions, unread), (1, 1, 0));
    let [copy, of_t, of_u] = &statements[..] else { panic!("{statements:?}") };
    assert_eq!(
        (copy.normalized.as_str(), texts(copy)),
        ("COPY u(a) FROM STDIN", vec!["COPY u (a) FROM STDIN"])
    );
    assert_eq!((of_t.normalized.as_str(), of_t.count), ("SELECT * FROM t WHERE a = ?", 3));
    assert_eq!(of_t.tests, ["one", "test_one", "two"]);
    let mut of_t = texts(of_t);
    of_t.sort_unstable();
    assert_eq!(of_t, ["SELECT  * FROM t WHERE a = 2", "SELECT * FROM t WHERE a = 1"]);
    assert_eq!((of_u.count, &of_u.tests[..], of_u.runs.len()), (2, &["two".to_owned()][..], 2));
}

#[test]
fn failed_statements_are_not_collected() {
    let collection = Arc::<StatementCollection>::default();
    let mut session = Session::new(&collection, "d");
    session.fail("INSERT INTO t VALUES (1)", b'I');
    assert_eq!(collection.finish(), CollectedStatements::default());
}

#[test]
fn choice_of_runs_does_not_depend_on_order() {
    let runs = |numbers: &mut dyn Iterator<Item = u32>| {
        let collection = Arc::<StatementCollection>::default();
        let mut session = Session::new(&collection, "d");
        numbers.for_each(|number| session.query(&format!("SELECT {number}")));
        let collected = collection.finish().statements.remove(0);
        assert_eq!(collected.count, 100);
        collected.runs
    };
    let forwards = runs(&mut (0..100));
    assert_eq!(forwards.len(), RUNS);
    assert_eq!(runs(&mut (0..100).rev()), forwards);
}

#[test]
fn statements_differ_by_their_settings() {
    let collection = Arc::<StatementCollection>::default();
    let mut session = Session::new(&collection, "d");
    session.query("SET search_path TO a; SELECT 1");
    session.query_in("BEGIN", b'T');
    session.query_in("SET search_path TO b", b'T');
    session.query_in("SELECT 1", b'T');
    session.fail("SELECT nonsense", b'E');
    session.query("COMMIT");
    session.query("SELECT 1");
    let statements = collection.finish().statements;
    let seen: Vec<_> = statements.iter().map(|one| (one.settings[0].1.as_str(), one.count)).collect();
    assert_eq!(seen, [("\"a\"", 2), ("\"b\"", 1)]);
}

#[test]
fn statements_beyond_the_limit_are_counted() {
    let collection = Arc::<StatementCollection>::default();
    let mut session = Session::new(&collection, "d");
    for number in 0..MAX_STATEMENTS + 5 {
        session.query(&format!("SELECT c{number}"));
    }
    session.query(&format!("SELECT '{}'", "x".repeat(300_000)));
    let collected = collection.finish();
    assert_eq!(
        (collected.statements.len(), collected.beyond_limits, collected.unread),
        (MAX_STATEMENTS, 5, 1)
    );
}

#[test]
fn long_statements_take_bounded_memory() {
    let collection = Arc::<StatementCollection>::default();
    let mut session = Session::new(&collection, "d");
    let name = "x".repeat(250_000);
    for number in 0..300 {
        session.query(&format!("SELECT \"{name}{number}\""));
    }
    let state = lock(&collection.0);
    let normalized: usize = state.normalized.values.iter().map(|text| text.len()).sum();
    let cached: usize = state.parts.keys().map(|text| text.len()).sum();
    assert!(normalized <= MAX_BYTES + name.len(), "{normalized}");
    assert!(cached <= MAX_CACHED_BYTES + name.len(), "{cached}");
    drop(state);
    let collected = collection.finish();
    assert_eq!(collected.statements.len() + usize::try_from(collected.beyond_limits).unwrap(), 300);
}
