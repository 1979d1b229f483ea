//! Tests that a client receives the same responses in rollback isolation as from a separate database.
//!
//! The test sends the same steps to both sides: with the simple and the extended protocol, and with several
//! statements in a string or in a group. It compares all messages in their order: rows, tags, errors, notices,
//! setting reports and the transaction status. It doesn't generate statements whose responses can't be equal, which
//! docs/isolation.md lists.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Serve, bind, execute, majors, message, parse, query, run, start, sync};
use crate::common::client::{Client, Message};
use crate::common::depth;

/// Statements for sessions, one in each line. `{n}` stands for a small number.
const STATEMENTS: &str = include_str!("statements.sql");

/// A client's step. The client reads all responses before its next step.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Query string with several statements.
    Simple(Vec<String>),
    /// Group of unnamed statements, and whether a Flush precedes the group's Sync.
    Group(Vec<String>, bool),
    /// Named prepared statement.
    Prepare(u8, String),
    /// Consecutive executions of prepared statements in one group.
    Execute(Vec<u8>),
    /// Several strings and groups, sent without waiting for responses.
    Pipeline(Vec<Step>),
    /// COPY with these rows. A false element is a row with an error.
    Copy(Vec<bool>),
}

impl Step {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Simple(statements) => query(&statements.join("; ")),
            Self::Group(statements, flush) => {
                let mut bytes: Vec<u8> = statements.iter().flat_map(|sql| run(sql)).collect();
                if *flush {
                    bytes.extend(message(b'H', b""));
                }
                [bytes, sync()].concat()
            }
            Self::Prepare(name, sql) => [parse(&format!("s{name}"), sql), sync()].concat(),
            Self::Execute(names) => {
                let one = |name: &u8| [bind("", &format!("s{name}")), execute("")].concat();
                [names.iter().flat_map(one).collect(), sync()].concat()
            }
            Self::Pipeline(steps) => steps.iter().flat_map(Self::bytes).collect(),
            Self::Copy(rows) => {
                let rows = rows.iter().flat_map(|good| message(b'd', if *good { b"7\n" } else { b"bad\n" }));
                [query("COPY seed FROM STDIN"), rows.collect(), message(b'c', b"")].concat()
            }
        }
    }

    /// Returns the number of ReadyForQuery messages in the response.
    fn readies(&self) -> usize {
        if let Self::Pipeline(steps) = self { steps.len() } else { 1 }
    }

    pub(super) fn ask(&self, client: &mut Client) -> Vec<String> {
        client.send(&self.bytes());
        let answers = (0..self.readies()).flat_map(|_| client.until_ready());
        let answers: Vec<_> = answers.collect();
        let news = answers.iter().filter(|message| message.0 != b'S' || is_news(client, &message.1));
        let mut said: Vec<_> = news.map(description_of).collect();
        // From PostgreSQL 16 on, the order of several reports depends on all earlier settings.
        said.chunk_by_mut(|one, next| one.starts_with("S ") && next.starts_with("S ")).for_each(<[_]>::sort);
        said
    }
}

/// Whether a report contains a new value. PostgreSQL 13 repeats known values, more often after
/// a setting was restored.
fn is_news(client: &mut Client, report: &[u8]) -> bool {
    let name = |report: &[u8]| report.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    let known = client.reported.iter_mut().find(|known| name(known) == name(report));
    let news = known.as_ref().is_none_or(|known| **known != report);
    match known {
        Some(known) => report.clone_into(known),
        None => client.reported.push(report.to_vec()),
    }
    news
}

/// Returns the relevant parts of a message: code, text and position of an error or notice, and columns
/// without their table's OID.
pub(crate) fn description_of((tag, body): &Message) -> String {
    if *tag == b'T' {
        return columns(&body[2..]);
    }
    if !matches!(tag, b'E' | b'N') {
        return format!("{} {}", char::from(*tag), String::from_utf8_lossy(body));
    }
    let fields = body
        .split(|byte| *byte == 0)
        .filter(|field| field.first().is_some_and(|code| b"VCMPD".contains(code)));
    let mut fields: Vec<_> = fields.map(String::from_utf8_lossy).collect();
    // The error might give either a transaction block or a pipeline as the reason.
    if fields.iter().any(|field| field == "C25001") {
        fields.retain(|field| !field.starts_with('M'));
    }
    format!("{} {}", char::from(*tag), fields.join(" "))
}

/// Returns the column names and types in a `RowDescription`.
fn columns(mut rest: &[u8]) -> String {
    let mut text = String::from("T");
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let (name, column) = (String::from_utf8_lossy(&rest[..end]), &rest[end + 7..end + 19]);
        text = format!("{text} {name} {:?}", &column[..10]);
        rest = &rest[end + 19..];
    }
    text
}

fn statement() -> impl Strategy<Value = String> {
    let lines: Vec<_> = STATEMENTS.lines().filter(|line| !line.starts_with("--")).collect();
    (prop::sample::select(lines), 1..5u32).prop_map(|(line, n)| line.replace("{n}", &n.to_string()))
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    // An empty statement at the start of a pipeline changes only warnings.
    let some = statement().prop_filter("empty", |sql| !sql.is_empty() && !sql.starts_with("/*"));
    let group = (prop::collection::vec(some, 1..5), any::<bool>());
    let leaf = prop_oneof![
        6 => statement().prop_map(|one| Step::Simple(vec![one])),
        2 => prop::collection::vec(statement(), 2..5).prop_map(Step::Simple),
        3 => group.prop_map(|(statements, flush)| Step::Group(statements, flush)),
        1 => (0..3u8, statement()).prop_map(|(name, sql)| Step::Prepare(name, sql)),
        1 => prop::collection::vec(0..3u8, 1..3).prop_map(Step::Execute),
        1 => prop::collection::vec(prop::bool::weighted(0.8), 0..4).prop_map(Step::Copy),
    ];
    let simple = leaf.clone();
    prop_oneof![
        9 => leaf,
        1 => prop::collection::vec(simple, 2..4).prop_map(|mut steps| {
            // The response to data after a rejected COPY depends on their position in the stream.
            steps.retain(|step| !matches!(step, Step::Copy(_)));
            Step::Pipeline(steps)
        }),
    ]
}

/// Returns the number of generated cases for each major.
fn cases() -> u32 {
    depth::rounds(150)
}

/// Whether the steps contain a case from the table in docs/isolation.md. Either a constraint was added after SET
/// CONSTRAINTS ALL, or a transaction in a chain of read-only transactions fails after a savepoint.
fn is_limited(steps: &[Step]) -> bool {
    let said = format!("{steps:?}");
    let has = |words: &[&str]| words.iter().all(|word| said.contains(word));
    has(&["SET CONSTRAINTS ALL", "INITIALLY DEFERRED"]) || has(&["READ ONLY", "SAVEPOINT", "AND CHAIN"])
}

fn check(serve: &Serve, case: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    if is_limited(steps) {
        return Err(TestCaseError::reject("a limit"));
    }
    let mut plain = serve.connect(&format!("plain_{case}"), "-c pgfresh.linger=0").unwrap();
    let mut rollback = serve.rollback("rollback");
    for (at, step) in steps.iter().enumerate() {
        let (expected, found) = (step.ask(&mut plain), step.ask(&mut rollback));
        prop_assert_eq!(found, expected, "at step {} of {:#?}", at, steps);
    }
    // The final content is also the same.
    for sql in [
        "ROLLBACK",
        "TABLE item",
        "TABLE parent",
        "TABLE child",
        "TABLE later",
        "TABLE seed",
        "SHOW work_mem",
    ] {
        let step = Step::Simple(vec![sql.to_owned()]);
        let (expected, found) = (step.ask(&mut plain), step.ask(&mut rollback));
        prop_assert_eq!(found, expected, "{} after {:#?}", sql, steps);
    }
    plain.close();
    rollback.close();
    Ok(())
}

#[test]
fn generated_statements_get_a_plain_servers_answers() {
    for major in majors() {
        let serve = start(major);
        let config = ProptestConfig {
            cases: cases(),
            max_shrink_iters: 500,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut case = 0;
        let numbers = std::cell::RefCell::new(&mut case);
        let result = TestRunner::new(config).run(&prop::collection::vec(step(), 1..14), |steps| {
            let number = {
                let mut numbers = numbers.borrow_mut();
                **numbers += 1;
                **numbers
            };
            check(&serve, number, &steps)
        });
        if let Err(error) = result {
            panic!("PostgreSQL {major}: {error}");
        }
        // After hundreds of leases, the database that all of them used is unchanged.
        assert_eq!(serve.rollback("rollback").value("SELECT count(*) FROM item").unwrap(), "0");
    }
}
