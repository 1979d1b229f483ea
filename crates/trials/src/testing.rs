//! Builds leases for unit tests.

use std::time::{Duration, Instant};

use pgwire::NormalizedStatement;

use crate::recording::{Call, LeaseRecord, RanStatement, StatementResult};

/// Returns a lease that runs `texts`, one statement a second, starting at `begun`. The prefix `T:` puts a statement
/// into a transaction, and an SQLSTATE as prefix (`40001:`) makes it fail.
pub(crate) fn lease(begun: Instant, texts: &[&str]) -> LeaseRecord {
    let statement = |(place, text): (usize, &&str)| {
        let (in_transaction, text) = text.strip_prefix("T:").map_or((false, *text), |text| (true, text));
        let (result, text) = match text.split_once(':') {
            Some((sqlstate, text)) if sqlstate.len() == 5 => {
                (StatementResult::Failed(sqlstate.to_owned()), text)
            }
            _ => (StatementResult::Done(if text == "COMMIT" { text } else { "OK" }.to_owned()), text),
        };
        RanStatement {
            text: text.to_owned(),
            kind: NormalizedStatement::read(text).kind,
            session: 1,
            call: Call::Query,
            sent: begun + Duration::from_secs(place as u64),
            in_transaction,
            follows_work: false,
            result,
        }
    };
    LeaseRecord {
        database: "app".to_owned(),
        statements: texts.iter().enumerate().map(statement).collect(),
        sessions: vec![begun],
        ..LeaseRecord::default()
    }
}
