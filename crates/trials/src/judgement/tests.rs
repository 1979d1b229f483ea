use super::*;
use crate::contents::{Column, ColumnContent, Contents, Table};
use crate::points::points;
use crate::steady::steady_leases;
use crate::testing::lease;

/// Statements of a lease without faults.
const CLEAN: [&str; 3] = ["BEGIN", "T:INSERT INTO t VALUES (1)", "T:COMMIT"];

fn point(name: &str) -> Point {
    let lease = lease(Instant::now(), &CLEAN);
    let (points, _) = points(&steady_leases(vec![lease.clone()], vec![lease], &[]).0);
    points.into_iter().find(|point| point.to_string().starts_with(name)).unwrap()
}

fn contents(values: &[&str]) -> Contents {
    let column = Column { name: "a".to_owned(), content: ColumnContent::Plain };
    let rows: Vec<_> = values.iter().map(|value| vec![Some((*value).to_owned())]).collect();
    let table = Table { columns: vec![column], count: rows.len() as u64, rows: Some(rows) };
    Contents { tables: [("t".to_owned(), table)].into(), ..Contents::default() }
}

/// Judges a run whose fault fired at its start. `values` are the rows at the end of the run.
fn judged(name: &str, end: RunEnd, later: &[&str], values: Option<&[&str]>) -> Judgement {
    let fired = Instant::now();
    let lease =
        LeaseRecord { contents: values.map(contents), ..lease(fired + Duration::from_secs(1), later) };
    let lease = Some(LeaseRecord { sessions: Vec::new(), ..lease });
    let steady_rows = SteadyRows::of(contents(&["1"]), &contents(&["1"]), &[]);
    judge(&point(name), Some(&steady_rows), &FaultyRun { end, fired: Some(fired), lease })
}

fn kind(judgement: &Judgement) -> &'static str {
    match judgement {
        Judgement::NotReached => "not reached",
        Judgement::Recovered => "recovered",
        Judgement::Passed => "passed",
        Judgement::Shown { .. } => "shown",
        Judgement::Finding(kind) => kind.name(),
    }
}

#[test]
fn judgement_depends_on_end_rows_and_retries() {
    let (passed, failed) = (RunEnd::Passed, RunEnd::Failed);
    let hang = RunEnd::TimedOut(Duration::from_secs(1));
    let insert = "T:INSERT INTO t VALUES (1)";
    for (fault, end, later, values, expected) in [
        ("COMMIT:40001", passed, &[insert, "T:COMMIT"][..], Some(&["1"][..]), "recovered"),
        ("COMMIT:40001", passed, &[], Some(&[][..]), "hidden_error"),
        ("COMMIT:40001", passed, &["T:40001:INSERT INTO t VALUES (1)"], Some(&[]), "hidden_error"),
        ("COMMIT:40001", passed, &[insert], Some(&[]), "lost_rows"),
        ("COMMIT:lost after", passed, &[insert], Some(&["1", "1"]), "doubled_rows"),
        ("COMMIT:lost after", passed, &[], Some(&[]), "lost_rows"),
        ("COMMIT:lost after", passed, &[], Some(&["2"]), "changed_rows"),
        ("COMMIT:lost after", passed, &[], Some(&["1", "2"]), "surplus_rows"),
        ("COMMIT:lost after", passed, &[], None, "passed"),
        ("COMMIT:lost after", failed, &[insert], Some(&["1", "1"]), "doubled_rows_failed"),
        // A test that fails early leaves rows behind that it would otherwise have deleted.
        ("COMMIT:lost after", failed, &[], Some(&["1", "1"]), "shown"),
        ("COMMIT:lost before", failed, &[], Some(&[]), "shown"),
        ("COMMIT:lost before", hang, &[], Some(&["1"]), "hang"),
        ("INSERT:40001", failed, &["T:25P02:SELECT 1"], Some(&[]), "shown"),
        ("INSERT:40001", failed, &["T:25P02:SELECT 1", "T:25P02:SELECT 2"], Some(&[]), "failed_transaction"),
    ] {
        let fault = fault.replace("INSERT", "INSERT INTO t VALUES (…)");
        let judgement = judged(&format!("app:{fault}"), end, later, values);
        assert_eq!(kind(&judgement), expected, "{fault} {end:?} {later:?} {values:?}");
    }
    let run = FaultyRun { end: failed, fired: None, lease: None };
    assert_eq!(judge(&point("app:COMMIT"), None, &run), Judgement::NotReached);
}

#[test]
fn lost_connection_is_compared_with_a_retry() {
    let of = |fault: &str, judgement: &Judgement| (point(&format!("app:COMMIT:{fault}")), judgement.clone());
    let fails = Judgement::Shown { reconnects: false };
    for (retry, lost, expected) in [
        (Judgement::Recovered, fails.clone(), vec![(0, 1), (0, 2)]),
        (Judgement::Recovered, Judgement::Shown { reconnects: true }, Vec::new()),
        (fails.clone(), fails, Vec::new()),
    ] {
        let all = [of("40001", &retry), of("lost before", &lost), of("lost after", &lost)];
        let refs: Vec<_> = all.iter().map(|(point, judgement)| (point, judgement)).collect();
        let losses: Vec<_> = stuck(&refs).iter().map(|stuck| (stuck.retry, stuck.loss)).collect();
        assert_eq!(losses, expected, "{retry:?} {lost:?}");
    }
}
