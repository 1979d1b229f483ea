use super::*;
use crate::contents::Column;

fn column(name: &str, content: ColumnContent) -> Column {
    Column { name: name.to_owned(), content }
}

fn orders(rows: &[[&str; 4]]) -> Contents {
    let columns = vec![
        column("id", ColumnContent::Generated),
        column("customer_id", ColumnContent::Reference),
        column("note", ColumnContent::Text),
        column("total", ColumnContent::Plain),
    ];
    let values = |row: &[&str; 4]| row.iter().map(|value| Some((*value).to_owned())).collect();
    let table = Table { columns, count: rows.len() as u64, rows: Some(rows.iter().map(values).collect()) };
    Contents { tables: BTreeMap::from([("public.orders".to_owned(), table)]), ..Contents::default() }
}

fn steady_rows(rows: &[[&str; 4]]) -> SteadyRows {
    SteadyRows::of(orders(rows), &orders(rows), &[])
}

fn kinds(steady_rows: &SteadyRows, rows: &[[&str; 4]]) -> Vec<DifferenceKind> {
    steady_rows.differences(&orders(rows)).iter().map(|difference| difference.kind).collect()
}

#[test]
fn rows_are_lost_doubled_or_changed() {
    let clean = steady_rows(&[["1", "7", "order 1", "5.00"], ["2", "7", "order 2", "6.00"]]);
    for (rows, kind) in [
        (&[["1", "7", "order 1", "5.00"], ["2", "7", "order 2", "6.00"]][..], None),
        // A second attempt leaves a gap in the sequence.
        (&[["1", "7", "order 1", "5.00"], ["3", "8", "order 3", "6.00"]], None),
        (&[["2", "7", "order 2", "6.00"]], Some(DifferenceKind::Lost)),
        (
            &[["1", "7", "order 1", "5.00"], ["2", "7", "order 2", "6.00"], ["3", "7", "order 3", "6.00"]],
            Some(DifferenceKind::Doubled),
        ),
        (&[["1", "7", "order 1", "5.00"], ["2", "7", "order 2", "9.00"]], Some(DifferenceKind::Changed)),
        (
            &[["1", "7", "order 1", "5.00"], ["2", "7", "order 2", "6.00"], ["3", "7", "gift", "6.00"]],
            Some(DifferenceKind::Surplus),
        ),
    ] {
        assert_eq!(kinds(&clean, rows), kind.into_iter().collect::<Vec<_>>(), "{rows:?}");
    }
}

#[test]
fn columns_that_vary_without_faults_are_left_out() {
    let clean = SteadyRows::of(
        orders(&[["1", "7", "at 10:01", "5.00"]]),
        &orders(&[["1", "7", "on Monday", "5.00"]]),
        &[],
    );
    assert_eq!(kinds(&clean, &[["1", "7", "at noon", "5.00"]]), []);
    assert_eq!(kinds(&clean, &[["1", "7", "at noon", "6.00"]]), [DifferenceKind::Changed]);
    let unsteady = SteadyRows::of(orders(&[["1", "7", "a", "5.00"]]), &orders(&[]), &[]);
    assert_eq!(unsteady.unsteady_tables().collect::<Vec<_>>(), ["public.orders"]);
    assert_eq!(kinds(&unsteady, &[]), []);
}

#[test]
fn rows_that_vary_as_a_whole_are_counted() {
    let one = [["1", "7", "a", "1"], ["2", "7", "b", "2"]];
    let other = [["1", "7", "a", "2"], ["2", "7", "b", "1"]];
    let clean = SteadyRows::of(orders(&one), &orders(&other), &[]);
    assert_eq!(kinds(&clean, &other), []);
    assert_eq!(kinds(&clean, &one[..1]), [DifferenceKind::Lost]);
}

#[test]
fn difference_names_table_and_rows() {
    let clean = steady_rows(&[["1", "7", "lamp", "5.00"]]);
    let found = orders(&[["1", "7", "lamp", "5.00"], ["2", "7", "lamp", "5.00"]]);
    let text = clean.differences(&found)[0].to_string();
    assert_eq!(text, "public.orders has 2 rows instead of 1; twice: note=lamp, total=5.00");
    let text = clean.differences(&orders(&[]))[0].to_string();
    assert_eq!(text, "public.orders has 0 rows instead of 1; missing: note=lamp, total=5.00");
}

#[test]
fn rows_without_a_value_are_not_shown() {
    let ignored = ["orders.note".to_owned(), "orders.total".to_owned()];
    let clean = orders(&[["1", "7", "lamp", "5.00"]]);
    let clean = SteadyRows::of(clean.clone(), &clean, &ignored);
    let [difference] = &clean.differences(&orders(&[]))[..] else { panic!() };
    assert_eq!(difference.to_string(), "public.orders has 0 rows instead of 1");
}

#[test]
fn missing_tables_have_lost_their_rows() {
    let lamp = [["1", "7", "lamp", "5.00"]];
    let clean = steady_rows(&lamp);
    let [difference] = &clean.differences(&Contents::default())[..] else { panic!() };
    assert_eq!((difference.kind, difference.expected, difference.found), (DifferenceKind::Lost, 1, 0));
    let new = SteadyRows::of(Contents::default(), &Contents::default(), &[]);
    assert_eq!(kinds(&new, &lamp), [DifferenceKind::Surplus]);
    // The table exists only in the second run without faults.
    let unsteady = SteadyRows::of(Contents::default(), &orders(&lamp), &[]);
    assert_eq!((kinds(&unsteady, &lamp), unsteady.unsteady_tables().count()), (Vec::new(), 1));
}

/// Returns contents with a table of jobs (numbers and end times), and a sequence with the last value `last`.
fn jobs(rows: &[(&str, &str)], last: i64) -> Contents {
    let columns = vec![column("number", ColumnContent::Integer), column("ended", ColumnContent::Time)];
    let value = |value: &str| (value != "NULL").then(|| value.to_owned());
    let rows: Vec<_> = rows.iter().map(|(number, ended)| vec![value(number), value(ended)]).collect();
    let table = Table { columns, count: rows.len() as u64, rows: Some(rows) };
    Contents {
        tables: BTreeMap::from([("public.jobs".to_owned(), table)]),
        sequences: BTreeMap::from([("numbers".to_owned(), last)]),
    }
}

#[test]
fn sequences_and_times_may_differ_after_retry() {
    let before = jobs(&[("4", "NULL"), ("5", "2026-01-01")], 5);
    let clean = SteadyRows::of(before.clone(), &before, &[]);
    for (after, expected) in [
        (jobs(&[("4", "NULL"), ("5", "2026-01-02")], 5), None),
        (jobs(&[("4", "NULL"), ("6", "2026-01-01")], 6), None),
        (jobs(&[("4", "NULL"), ("6", "2026-01-01")], 5), Some(DifferenceKind::Changed)),
        (jobs(&[("4", "NULL"), ("7", "2026-01-01")], 6), Some(DifferenceKind::Changed)),
        (jobs(&[("4", "NULL"), ("5", "NULL")], 5), Some(DifferenceKind::Changed)),
        (jobs(&[("4", "NULL"), ("5", "2026-01-01"), ("6", "2026-01-01")], 6), Some(DifferenceKind::Doubled)),
    ] {
        let kinds: Vec<_> = clean.differences(&after).iter().map(|difference| difference.kind).collect();
        assert_eq!(kinds, expected.into_iter().collect::<Vec<_>>(), "{after:?}");
    }
}

#[test]
fn ignored_tables_and_columns_are_left_out() {
    let before = jobs(&[("4", "NULL")], 4);
    let after = jobs(&[("5", "NULL")], 4);
    for (ignored, is_known, differences) in [
        ("jobs", true, 0),
        ("public.jobs", true, 0),
        ("jobs.number", true, 0),
        ("public.jobs.number", true, 0),
        ("jobs.ended", true, 1),
        ("number", false, 1),
        ("other.jobs", false, 1),
        ("jobs.numbers", false, 1),
    ] {
        let clean = SteadyRows::of(before.clone(), &before, &[ignored.to_owned()]);
        assert_eq!(
            (clean.has(ignored), clean.differences(&after).len()),
            (is_known, differences),
            "{ignored}"
        );
        assert_eq!(clean.unsteady_tables().count(), 0);
    }
}

#[test]
fn nulls_count_where_values_vary() {
    let row = |ended: &str| jobs(&[("4", ended)], 4);
    // The time is the time of the run, so it differs in each run.
    let clean = SteadyRows::of(row("2026-01-01 10:01"), &row("2026-01-01 10:02"), &[]);
    assert!(clean.differences(&row("2026-01-01 10:03")).is_empty());
    let [difference] = &clean.differences(&row("NULL"))[..] else { panic!() };
    assert_eq!(difference.to_string(), "public.jobs has other values; missing: number=4, ended=…");
}
