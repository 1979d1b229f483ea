//! Commands of a sweep, with their runs without faults.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::Duration;

use gateway::Fault;
use report::counted;
use server::printable_lines;
use sweep::{Point, SteadyLease, steady_leases};

use super::child::CommandEnd;
use super::parallel::in_parallel;
use super::progress::SweepProgress;
use super::runner::{CommandRun, Runner};
use crate::failure::Failure;
use crate::notice::print_notice;
use crate::user_command::NO_SESSION;

/// Placeholder for the name of a test.
const TEST: &str = "{test}";
/// Time limit of a run with a fault: this time, and this multiple of the time without faults.
const EXTRA: Duration = Duration::from_secs(10);
const MULTIPLE: u32 = 5;

/// A command to run, with all tests or with one.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) words: Vec<OsString>,
    /// Time after which a run with a fault hangs.
    pub(super) limit: Duration,
    pub(super) leases: Vec<SteadyLease>,
}

/// Targets, and phrases about what the sweep cannot see of them.
#[derive(Debug, Default)]
pub(super) struct Targets {
    all: Vec<Target>,
    pub(super) unseen: BTreeSet<String>,
    /// Places of the leases by their labels: the target, and the lease of the target.
    places: HashMap<String, (usize, usize)>,
}

/// Result of recording a target.
enum Recorded {
    Target(Target, BTreeSet<String>),
    /// A test that fails on its own.
    Fails(String),
    Cancelled,
}

impl Targets {
    /// Runs the command without faults, with `{test}` only for tests that `only` may name. Returns `None` if a signal arrives
    /// meanwhile.
    pub(super) fn record(
        runner: &Runner<'_>,
        command: &[OsString],
        only: &[String],
        jobs: usize,
        progress: &SweepProgress,
    ) -> Result<Option<Self>, Failure> {
        let mut all = Self::default();
        if !command.iter().any(has_placeholder) {
            progress.say("running the command twice without faults");
            match record(runner, None, command.to_vec())? {
                Recorded::Target(target, unseen) => all.add(target, unseen),
                Recorded::Fails(_) | Recorded::Cancelled => return Ok(None),
            }
            return Ok(Some(all));
        }
        progress.say("running all tests without faults");
        let whole = runner.run(&without_placeholder(command), None, None)?;
        if whole.end == CommandEnd::Cancelled {
            return Ok(None);
        }
        expect_success(&whole)?;
        let tests: BTreeSet<String> = whole.leases.into_iter().filter_map(|lease| lease.test).collect();
        if tests.is_empty() {
            return Err(no_names());
        }
        let may_mean = |name: &String, test: &str| name.starts_with(test) || test.starts_with(name.as_str());
        let is_wanted = |test: &String| only.is_empty() || only.iter().any(|name| may_mean(name, test));
        let tests: Vec<_> = tests.into_iter().filter(is_wanted).collect();
        let work = |test: &String| {
            progress.say(&format!("running {test} twice without faults"));
            record(runner, Some(test), with_test(command, test))
        };
        let recorded = in_parallel(jobs, &tests, work, |_| ())?;
        for recorded in recorded {
            match recorded {
                Recorded::Target(target, unseen) => all.add(target, unseen),
                Recorded::Fails(test) => {
                    all.unseen.insert(format!("the test {test}, which fails in a run of its own"));
                }
                Recorded::Cancelled => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    fn add(&mut self, target: Target, unseen: BTreeSet<String>) {
        for (place, lease) in target.leases.iter().enumerate() {
            self.places.insert(lease.label.clone(), (self.all.len(), place));
        }
        self.all.push(target);
        self.unseen.extend(unseen);
    }

    /// Returns the target and the lease of a point.
    pub(super) fn of(&self, point: &Point) -> Option<(&Target, &SteadyLease)> {
        let (target, lease) = self.places.get(&point.label)?;
        let target = self.all.get(*target)?;
        Some((target, target.leases.get(*lease)?))
    }

    /// Yields the leases of all targets.
    pub(super) fn leases(&self) -> impl Iterator<Item = &SteadyLease> {
        self.all.iter().flat_map(|target| &target.leases)
    }
}

fn no_names() -> Failure {
    let failure = Failure::new(format!("no test has reported its name, which {TEST} needs"));
    failure.hint(format!(
        "Use a client of pgfresh in the tests, or leave {TEST} out: each run then has all tests."
    ))
}

/// Returns the fault of a point.
pub(super) fn fault_of(point: &Point) -> Result<Fault, Failure> {
    Fault::try_from(point.request()).map_err(|error| Failure::new(error.what).hint(error.hint))
}

/// Runs a command twice without faults.
fn record(runner: &Runner<'_>, test: Option<&str>, words: Vec<OsString>) -> Result<Recorded, Failure> {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = runner.run(&words, None, None)?;
        match (run.end, test) {
            (CommandEnd::Cancelled, _) => return Ok(Recorded::Cancelled),
            (CommandEnd::Exited(0), _) => {}
            (_, Some(test)) => return Ok(Recorded::Fails(test.to_owned())),
            (_, None) => expect_success(&run)?,
        }
        runs.push(run);
    }
    let [one, other] = <[CommandRun; 2]>::try_from(runs).map_err(|_| Failure::new("a run is missing"))?;
    let limit = one.time.max(other.time) * MULTIPLE + EXTRA;
    if one.leases.is_empty() && one.unleased.is_empty() {
        return Err(Failure::new("the command used no database").hint(NO_SESSION.to_owned()));
    }
    let mut unseen = unseen(&one);
    let (mut leases, unsteady) = steady_leases(one.leases, other.leases);
    if unsteady > 0 {
        let leases = counted(unsteady, "lease", "leases");
        unseen.insert(format!("{leases} whose order differs from run to run: use one worker"));
    }
    if let Some(test) = test {
        for lease in leases.iter_mut().filter(|lease| lease.record.test.as_deref() != Some(test)) {
            lease.label = format!("{test} > {}", lease.label);
        }
    }
    unseen.extend(unseen_rows(&leases));
    Ok(Recorded::Target(Target { words, limit, leases }, unseen))
}

/// Returns a failure with the command's exit code and the end of its output, unless the command has succeeded.
fn expect_success(run: &CommandRun) -> Result<(), Failure> {
    let code = match run.end {
        CommandEnd::Exited(0) => return Ok(()),
        CommandEnd::Exited(code) => code,
        CommandEnd::TimedOut | CommandEnd::Cancelled => 1,
    };
    print_notice(printable_lines(&run.output));
    let failure = Failure::new(format!("the command fails without faults, with exit code {code}"));
    Err(failure.hint("A sweep needs tests that pass in each run.".to_owned()).exit_with(code))
}

fn unseen(run: &CommandRun) -> BTreeSet<String> {
    let mut unseen = BTreeSet::new();
    if !run.unleased.is_empty() {
        let names: Vec<_> = run.unleased.iter().map(String::as_str).collect();
        unseen.insert(format!("databases that SQL has created: {}", names.join(", ")));
    }
    if run.is_cut {
        unseen.insert("the statements of long sessions after their first 256 MB".to_owned());
    }
    unseen
}

/// Returns phrases about rows that cannot be compared.
fn unseen_rows(leases: &[SteadyLease]) -> Vec<String> {
    let mut unseen = Vec::new();
    let unread = leases.iter().filter(|lease| lease.steady_rows.is_none()).count();
    if unread > 0 {
        let leases = counted(unread, "lease", "leases");
        unseen.push(format!("rows of {leases} that pgfresh could not read, as in isolation server"));
    }
    let steady = || leases.iter().filter_map(|lease| lease.steady_rows.as_ref());
    let tables: BTreeSet<_> = steady().flat_map(sweep::SteadyRows::unsteady_tables).collect();
    if !tables.is_empty() {
        let tables: Vec<_> = tables.into_iter().collect();
        unseen.push(format!("rows of {}, which differ from run to run", tables.join(", ")));
    }
    if steady().next().is_some() && steady().all(sweep::SteadyRows::is_empty) {
        unseen.push(
            "lost and doubled rows, because no table has a row at the end of a test: do the tests delete them?"
                .to_owned(),
        );
    }
    unseen
}

fn has_placeholder(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.contains(TEST))
}

/// Returns the command that runs all tests: without words that are only the placeholder, and without it in other words.
fn without_placeholder(command: &[OsString]) -> Vec<OsString> {
    let words = command.iter().filter(|word| *word != TEST);
    words
        .map(|word| word.to_str().map_or_else(|| word.clone(), |text| text.replace(TEST, "").into()))
        .collect()
}

/// Returns the command that runs one test.
fn with_test(command: &[OsString], test: &str) -> Vec<OsString> {
    let word =
        |word: &OsString| word.to_str().map_or_else(|| word.clone(), |text| text.replace(TEST, test).into());
    command.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_stands_for_one_test_or_all() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        for (command, all, one) in [
            ("pytest tests {test}", "pytest tests", "pytest tests a::b"),
            ("go test -run={test} ./...", "go test -run= ./...", "go test -run=a::b ./..."),
            ("pytest -q {test}", "pytest -q", "pytest -q a::b"),
        ] {
            assert_eq!(without_placeholder(&words(command)), words(all), "{command}");
            assert_eq!(with_test(&words(command), "a::b"), words(one));
        }
    }
}
