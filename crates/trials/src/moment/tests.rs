use std::time::Instant;

use super::*;
use crate::testing::lease;

/// Returns the moments that count a statement as a candidate, as one letter each. The order is: error before it, loss
/// before it, loss after it, error at COMMIT, loss before COMMIT, loss after COMMIT.
fn counted(text: &str, edit: impl FnOnce(&mut RanStatement)) -> String {
    let mut statement = lease(Instant::now(), &[text]).statements.remove(0);
    edit(&mut statement);
    let moments = [
        ('e', Moment::ErrorBeforeStatement),
        ('l', Moment::LossBeforeStatement),
        ('a', Moment::AfterStatement),
        ('C', Moment::Commit),
        ('B', Moment::BeforeCommit),
        ('A', Moment::AfterCommit),
    ];
    moments.iter().filter(|(_, moment)| moment.counts(&statement)).map(|(letter, _)| *letter).collect()
}

#[test]
fn each_moment_counts_as_the_gateway() {
    let as_is = |_: &mut RanStatement| {};
    for (text, expected) in [
        ("UPDATE t SET a = 1", "ela"),
        ("23505:UPDATE t SET a = 1", "el"),
        ("42P01:UPDATE t SET a = 1", ""),
        ("T:25P02:UPDATE t SET a = 1", "l"),
        ("T:COMMIT", "elaCBA"),
        ("COMMIT", "elaA"),
        ("T:40001:COMMIT", "elCB"),
    ] {
        assert_eq!(counted(text, as_is), expected, "{text}");
    }
    let rolled_back =
        |statement: &mut RanStatement| statement.result = StatementResult::Done("ROLLBACK".to_owned());
    assert_eq!(counted("T:COMMIT", rolled_back), "laB");
    assert_eq!(counted("COMMIT", |statement| statement.follows_work = true), "elaCBA");
    assert_eq!(counted("SELECT 1", |statement| statement.result = StatementResult::Skipped), "");
    assert_eq!(counted("SELECT 1", |statement| statement.call = Call::Fetch), "a");
    assert_eq!(counted("SELECT 1", |statement| statement.call = Call::Parse), "");
    assert_eq!(counted("T:25P02:SELECT 1", |statement| statement.call = Call::Execute), "");
}
