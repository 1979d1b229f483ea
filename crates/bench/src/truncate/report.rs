//! Builds the report of the `truncate` benchmark, with figures from two articles for comparison.

use report::{Cell, Quantity, Report, Sample, Table, Timed, Unit};

use super::{CleanUp, FRESH, ISOLATED, contender_name};
use crate::setup::Setup;
use crate::summary::{add_samples, add_warnings, find, interval, rate, ratio};

pub(super) fn of(timed: &[Timed]) -> Report {
    let base = contender_name(Setup::Normal.name(), CleanUp::Truncate);
    let mut report = Report::new("Tests that clean up after themselves");
    report.add_table(tests(timed, &base));
    report.add_table(truncate_table(timed));
    report.add_table(rollback_table(timed, &base));
    add_warnings(&mut report, timed, "--rounds");
    add_samples(&mut report, timed);
    report.add_notes([
        "A test commits five times ten rows and then leaves 30 tables, each with two indexes, as it found them. By hand \
         it does so on one connection that is kept, over the server's own socket; with pgfresh each test connects \
         anew, over TCP with a password.",
        "The servers run side by side, and idle while others have their turn; before a turn by hand there is a \
         CHECKPOINT, which is not counted.",
    ]);
    report
}

fn tests(timed: &[Timed], base: &str) -> Table {
    let columns = ["a test", "95 %", "tests a second", "× as fast"];
    let mut table = Table::numbers("A test and its clean-up, in turn", "what", columns);
    for one in timed {
        let total = one.total();
        table.add_row([
            one.name().into(),
            total.median().into(),
            interval(&total).into(),
            rate(timed, one.name()).into(),
            gain(timed, base, one.name()),
        ]);
    }
    table
}

/// Returns how many times as fast as `base` the contender `name` is. For `base` itself, returns a missing cell.
fn gain(timed: &[Timed], base: &str, name: &str) -> Cell {
    if base == name {
        return Cell::Missing;
    }
    ratio(timed, base, name).into()
}

/// Returns a row of published figures: their name, the seconds before and after the change, and the ratio.
fn published(what: &str, before: f64, after: f64) -> [Cell; 4] {
    let seconds = |value| Quantity::new(value, Unit::Seconds).into();
    [what.into(), seconds(before), seconds(after), Quantity::new(before / after, Unit::Ratio).into()]
}

/// Returns the table about TRUNCATE. Source of its published figures: the article on tests in CI that were cleaned by
/// TRUNCATE (2025), "The Math" and "The Impact".
fn truncate_table(timed: &[Timed]) -> Table {
    let title = "TRUNCATE on a slow disk, beside the published figures";
    let mut table = Table::numbers(title, "what", ["before", "after", "× as fast"]);
    table.add_row(published("published: 24 tests, data directory moved to tmpfs", 648.0, 11.0));
    table.add_row(published("published: the whole suite", 3600.0, 600.0));
    let truncate = |who: &str| contender_name(who, CleanUp::Truncate);
    let base = truncate(Setup::Normal.name());
    for (what, name) in [
        ("here: a test, data directory moved to RAM", truncate(Setup::Tmpfs.name())),
        ("here: a test, seven settings tuned on the disk", truncate(Setup::Tuned.name())),
        ("here: a test, unchanged, with pgfresh run", truncate("pgfresh run")),
        ("here: a test, a fresh database from pgfresh instead", FRESH.to_owned()),
    ] {
        let median =
            |name: &str| find(timed, name).map(Timed::total).and_then(|total| Sample::median(&total));
        table.add_row([what.into(), median(&base).into(), median(&name).into(), gain(timed, &base, &name)]);
    }
    table
}

/// Returns the table about rollbacks. Source of its published figures: the table in End Point's blog, "Speeding Up
/// Integration Tests with PostgreSQL", with one client before and three after. Both commit, because the blog doesn't
/// have a figure for rollbacks.
fn rollback_table(timed: &[Timed], base: &str) -> Table {
    let title = "Each test one transaction that is rolled back, beside the published figures";
    let mut table = Table::numbers(title, "what", ["tests a second", "× as fast"]);
    let per_second = |value| Quantity::new(value, Unit::PerSecond);
    let gain_of = |value| Quantity::new(value, Unit::Ratio);
    table.add_row(["published: normal settings, one client".into(), per_second(78.0).into(), Cell::Missing]);
    table.add_row([
        "published: three settings off, three clients".into(),
        per_second(1215.0).into(),
        gain_of(1215.0 / 78.0).into(),
    ]);
    for (what, name) in [
        ("here: normal settings, TRUNCATE", base.to_owned()),
        ("here: normal settings, DELETE", contender_name(Setup::Normal.name(), CleanUp::Delete)),
        ("here: normal settings, rolled back", contender_name(Setup::Normal.name(), CleanUp::Rollback)),
        ("here: seven settings tuned, rolled back", contender_name(Setup::Tuned.name(), CleanUp::Rollback)),
        ("here: pgfresh run, rolled back by hand", contender_name("pgfresh run", CleanUp::Rollback)),
        ("here: pgfresh, rollback isolation", ISOLATED.to_owned()),
    ] {
        table.add_row([what.into(), rate(timed, &name).into(), gain(timed, base, &name)]);
    }
    table
}
