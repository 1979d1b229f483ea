//! Records the command without faults, either with all tests together or with each test separately.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::Duration;

use gateway::Fault;
use report::counted;
use server::printable_lines;
use trials::{Point, SteadyLease, UntriedTest, may_mean, steady_leases};

use super::child::CommandEnd;
use super::parallel::in_parallel;
use super::progress::TrialsProgress;
use super::run_gate::{Closed, RunGate};
use super::runner::{CommandRun, Purpose, Runner};
use super::test_runner::{TEST, TestCommand, npm_script};
use crate::cli::{FaultTrials, USAGE};
use crate::failure::Failure;
use crate::notice::print_notice;
use crate::user_command::NO_SESSION;

/// Time that the time limit of a run adds to [`MULTIPLE`] times the duration without faults.
const EXTRA: Duration = Duration::from_secs(10);
/// Factor in the time limit of a run: the limit is this many times the duration without faults, plus [`EXTRA`].
const MULTIPLE: u32 = 5;
/// Exit code for a command that hangs without faults.
const HANGS: u8 = 1;
/// Label for all tests together in the list of omitted tests.
const ALL_TESTS: &str = "all tests";

/// A command to run with faults, either with all tests or with a single test.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) words: Vec<OsString>,
    /// Time after which pgfresh ends a run with a fault and reports that the application hangs.
    pub(super) limit: Duration,
    pub(super) leases: Vec<SteadyLease>,
    /// Phrases about effects that the trials can't see.
    unseen: BTreeSet<String>,
}

/// All targets, and the tests without a target.
#[derive(Debug, Default)]
pub(super) struct Targets {
    all: Vec<Target>,
    pub(super) unseen: BTreeSet<String>,
    pub(super) left_out: Vec<UntriedTest>,
    /// Positions of each lease by its label: the index of the lease's target in `all`, and the index of the lease in
    /// that target.
    places: HashMap<String, (usize, usize)>,
}

/// Records targets by running the command without faults.
#[derive(Clone, Copy)]
pub(super) struct Recorder<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) gate: &'a RunGate<'a>,
    pub(super) arguments: &'a FaultTrials,
    pub(super) jobs: usize,
    pub(super) progress: &'a TrialsProgress,
}

/// Tests, grouped by the words that select them on the command line.
type Groups = BTreeMap<Vec<OsString>, BTreeSet<String>>;

/// The tests that a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// One test, or several tests that the test runner can't distinguish.
    Test,
}

/// Result of running a command without faults.
enum Recorded {
    Target(Target),
    /// At least one of the runs failed.
    Fails {
        because: String,
        code: u8,
        output: String,
    },
    /// The gate was closed, so a run couldn't begin.
    Closed(Closed),
    /// The command didn't run the test.
    Absent,
    Failed(Failure),
}

impl Recorder<'_> {
    /// Runs the command without faults, either with all tests, or with each test that `--only` could refer to.
    pub(super) fn record(self) -> Result<Targets, Failure> {
        match TestCommand::read(&self.arguments.command, npm_script) {
            Some(command) => self.record_tests(&command),
            None => self.record_all(),
        }
    }

    fn record_all(self) -> Result<Targets, Failure> {
        self.progress.show_step("running the command twice without faults");
        let mut targets = Targets::default();
        match self.record_twice(&self.arguments.command, Scope::All, None) {
            Recorded::Target(target) => targets.add(target),
            Recorded::Fails { because, code, output } => {
                print_notice(printable_lines(&output));
                let failure = Failure::new(format!("the command {because}"));
                let hint = format!(
                    "The trials need tests that pass in every run. With {TEST}, pgfresh leaves out the other tests."
                );
                return Err(failure.hint(hint).exit_with(code));
            }
            Recorded::Closed(closed) => targets.leave_out(ALL_TESTS, self.gate.reason(closed)),
            Recorded::Absent => {}
            Recorded::Failed(failure) => return Err(failure),
        }
        Ok(targets)
    }

    fn record_tests(self, command: &TestCommand) -> Result<Targets, Failure> {
        self.progress.show_step("running all tests without faults");
        let whole = self.runner.run(&command.for_all(), &Purpose::Record, None)?;
        let mut targets = Targets::default();
        match whole.end {
            CommandEnd::Interrupted => {
                targets.leave_out(ALL_TESTS, self.gate.reason(Closed::Interrupted));
                return Ok(targets);
            }
            CommandEnd::Exited(0) | CommandEnd::TimedOut => {}
            CommandEnd::Exited(code) => {
                let phrase = format!("tests that did not run: all tests together end with exit code {code}");
                targets.unseen.insert(phrase);
            }
        }
        let named: BTreeSet<String> = whole.leases.iter().filter_map(|lease| lease.test.clone()).collect();
        if named.is_empty() {
            return Err(no_names(&whole));
        }
        let only = &self.arguments.only;
        let wanted = |test: &&String| only.is_empty() || only.iter().any(|name| may_mean(name, test));
        let mut groups = Groups::new();
        for test in named.iter().filter(wanted) {
            groups.entry(command.for_test(test)).or_default().insert(test.clone());
        }
        self.record_groups(groups, &named, limit_after(&whole), targets)
    }

    /// Records groups of tests and adds them to `targets`. `named` contains the names of all tests that the command
    /// runs. No group runs longer than `limit`.
    fn record_groups(
        self,
        groups: Groups,
        named: &BTreeSet<String>,
        limit: Duration,
        mut targets: Targets,
    ) -> Result<Targets, Failure> {
        let groups: Vec<_> = groups.into_iter().collect();
        let work = |(words, tests): &(Vec<OsString>, BTreeSet<String>)| match self
            .record_group(words, tests, named, limit)
        {
            Recorded::Failed(failure) => {
                self.gate.fail(failure);
                Recorded::Closed(Closed::Failed)
            }
            recorded => recorded,
        };
        let recorded = in_parallel(self.jobs, &groups, work, |_| ());
        // pgfresh hasn't tried any faults yet, so returning the failure doesn't lose a report.
        if let Some(failure) = self.gate.take_failure() {
            return Err(failure);
        }
        let mut failed = None;
        for (recorded, (_, tests)) in recorded.into_iter().zip(&groups) {
            let because = match recorded {
                Recorded::Target(target) => {
                    targets.add(target);
                    continue;
                }
                Recorded::Fails { because, code, output } => {
                    failed.get_or_insert((code, output));
                    format!("{because}, when it runs alone")
                }
                Recorded::Closed(closed) => self.gate.reason(closed),
                Recorded::Absent | Recorded::Failed(_) => {
                    format!("the command did not run this test when its name replaced {TEST}")
                }
            };
            for test in tests {
                targets.leave_out(test, because.clone());
            }
        }
        match failed {
            Some((code, output)) if targets.all.is_empty() && self.gate.closed().is_none() => {
                print_notice(printable_lines(&output));
                Err(no_test_passes(code))
            }
            _ => Ok(targets),
        }
    }

    /// Records the tests that `words` select together. `named` contains the names of all tests that the command runs.
    fn record_group(
        self,
        words: &[OsString],
        tests: &BTreeSet<String>,
        named: &BTreeSet<String>,
        limit: Duration,
    ) -> Recorded {
        let first = tests.first().map_or("", String::as_str);
        self.progress.show_step(&format!("running {first} twice without faults"));
        let mut target = match self.record_twice(words, Scope::Test, Some(limit)) {
            Recorded::Target(target) => target,
            other => return other,
        };
        let of_lease = |lease: &SteadyLease| lease.record.test.clone();
        let ran: BTreeSet<_> = target.leases.iter().filter_map(of_lease).collect();
        let is_near =
            |other: &String| tests.iter().any(|test| encloses(test, other) || encloses(other, test));
        if let Some(other) = ran.iter().find(|other| !is_near(other)) {
            return Recorded::Failed(runs_others(first, other));
        }
        if ran.is_disjoint(tests) {
            return Recorded::Absent;
        }
        // The run's other tests have their own targets.
        let is_ours = |test: &String| tests.contains(test) || !named.contains(test);
        target.leases.retain(|lease| lease.record.test.as_ref().is_none_or(is_ours));
        for lease in &mut target.leases {
            if !lease.record.test.as_ref().is_some_and(|test| tests.contains(test)) {
                lease.label = format!("{first} > {}", lease.label);
            }
        }
        Recorded::Target(target)
    }

    /// Runs a command twice without faults. `limit` applies to the first run, whose duration determines the second
    /// run's time limit.
    fn record_twice(self, words: &[OsString], scope: Scope, limit: Option<Duration>) -> Recorded {
        let mut runs: Vec<CommandRun> = Vec::new();
        for place in 0..2 {
            if let Some(closed) = self.closed(scope, place) {
                return Recorded::Closed(closed);
            }
            let limit = runs.first().map(limit_after).or(limit);
            match self.runner.run(words, &Purpose::Record, limit) {
                Err(failure) => return Recorded::Failed(failure),
                Ok(run) if run.end == CommandEnd::Interrupted => {
                    return Recorded::Closed(Closed::Interrupted);
                }
                Ok(run) => runs.push(run),
            }
            if scope == Scope::All && runs[place].end != CommandEnd::Exited(0) {
                break;
            }
        }
        if let Some(fails) = failure_of(&runs) {
            return fails;
        }
        match <[CommandRun; 2]>::try_from(runs) {
            Ok([one, _]) if one.leases.is_empty() => Recorded::Failed(no_lease(&one)),
            Ok([one, other]) => Recorded::Target(self.target(words, one, other)),
            Err(_) => Recorded::Failed(Failure::new("a run is missing")),
        }
    }

    /// Returns the reason why the run at index `place` of the runs without faults can't begin, or `None` if it can.
    fn closed(self, scope: Scope, place: usize) -> Option<Closed> {
        match (scope, place) {
            // Without this run, pgfresh doesn't know any tests, so only a signal prevents the run.
            (Scope::All, 0) => self.gate.closed().filter(|closed| *closed == Closed::Interrupted),
            (Scope::Test, 0) => self.gate.closed_for_tests(),
            (Scope::All | Scope::Test, _) => self.gate.closed(),
        }
    }

    fn target(self, words: &[OsString], one: CommandRun, other: CommandRun) -> Target {
        let limit = limit_after(&one).max(limit_after(&other));
        let mut unseen = unseen(&one);
        let (leases, unsteady) = steady_leases(one.leases, other.leases, &self.arguments.ignore);
        if unsteady > 0 {
            let leases = counted(unsteady, "lease", "leases");
            unseen.insert(format!("{leases} whose order differs from run to run: use one worker, or {TEST}"));
        }
        unseen.extend(unseen_rows(&leases));
        Target { words: words.to_vec(), limit, leases, unseen }
    }
}

/// Returns the time limit for a run that does at most as much work as `run` did.
fn limit_after(run: &CommandRun) -> Duration {
    run.time * MULTIPLE + EXTRA
}

/// Describes how a command failed in one or two runs without faults. Returns `None` if it passed.
fn failure_of(runs: &[CommandRun]) -> Option<Recorded> {
    let mut failed = runs.iter().filter(|run| run.end != CommandEnd::Exited(0));
    let (count, last) = (failed.clone().count(), failed.next_back()?);
    let (code, fails) = match last.end {
        CommandEnd::Exited(code) => (code, format!("fails without faults, with exit code {code}")),
        CommandEnd::TimedOut | CommandEnd::Interrupted => (HANGS, "hangs without faults".to_owned()),
    };
    let because = if count < runs.len() { format!("is flaky: one of two runs {fails}") } else { fails };
    Some(Recorded::Fails { because, code, output: last.output.clone() })
}

impl Targets {
    fn add(&mut self, target: Target) {
        for (place, lease) in target.leases.iter().enumerate() {
            self.places.insert(lease.label.clone(), (self.all.len(), place));
        }
        self.unseen.extend(target.unseen.iter().cloned());
        self.all.push(target);
    }

    fn leave_out(&mut self, test: &str, because: String) {
        self.left_out.push(UntriedTest { test: test.to_owned(), because });
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

    /// Returns true if any lease's rows include this table, or a table with this column. `ignored` is a value
    /// of `--ignore`.
    pub(super) fn have_table(&self, ignored: &str) -> bool {
        self.leases().filter_map(|lease| lease.steady_rows.as_ref()).any(|rows| rows.has(ignored))
    }
}

/// Returns true if `outer` is `inner` itself, or the file, class or test that contains `inner`.
fn encloses(outer: &str, inner: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
}

fn no_names(run: &CommandRun) -> Failure {
    if let CommandEnd::Exited(code @ 1..) = run.end {
        print_notice(printable_lines(&run.output));
        return Failure::new(format!("the command fails without faults, with exit code {code}"))
            .exit_with(code);
    }
    if run.leases.is_empty() {
        return no_lease(run);
    }
    let failure = Failure::new(format!("no test has reported its name, which pgfresh needs for {TEST}"));
    failure.hint(format!(
        "Use a pgfresh client in the tests, or leave out {TEST}, so that each run executes all tests."
    ))
}

/// Builds the error for a run without a database where faults could be injected.
fn no_lease(run: &CommandRun) -> Failure {
    let names: Vec<_> =
        run.unleased.created.iter().chain(&run.unleased.always_there).map(String::as_str).collect();
    if names.is_empty() {
        return Failure::new("the command used no database").hint(NO_SESSION.to_owned());
    }
    let failure =
        Failure::new(format!("the command used no database that can have faults, but {}", names.join(", ")));
    failure.hint(
        "Connect to any other name: pgfresh creates a database for it, which can have faults.".to_owned(),
    )
}

fn runs_others(test: &str, other: &str) -> Failure {
    let failure = Failure::new(format!("the command for the test \"{test}\" also runs \"{other}\""));
    let hint = format!(
        "{TEST} must be the only argument that selects tests. Try the command with a test's name in its place."
    );
    failure.hint(hint).exit_with(USAGE)
}

fn no_test_passes(code: u8) -> Failure {
    let failure = Failure::new("no test passes twice without faults when it runs alone");
    failure
        .hint(format!("Check that the test runner accepts a test's name in place of {TEST}."))
        .exit_with(code)
}

/// Returns the fault to inject at a point.
pub(super) fn fault_of(point: &Point) -> Result<Fault, Failure> {
    Fault::try_from(point.request()).map_err(|error| Failure::new(error.what).hint(error.hint))
}

fn unseen(run: &CommandRun) -> BTreeSet<String> {
    let mut unseen = BTreeSet::new();
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if !run.unleased.created.is_empty() {
        unseen.insert(format!("databases that SQL has created: {}", list(&run.unleased.created)));
    }
    if !run.unleased.always_there.is_empty() {
        unseen.insert(format!("statements in {}, which all tests share", list(&run.unleased.always_there)));
    }
    if run.is_cut {
        unseen.insert("the statements of long sessions after their first 256 MB".to_owned());
    }
    unseen
}

/// Returns phrases about rows that can't be compared.
fn unseen_rows(leases: &[SteadyLease]) -> Vec<String> {
    let mut unseen = Vec::new();
    let unread = leases.iter().filter(|lease| lease.steady_rows.is_none()).count();
    if unread > 0 {
        let leases = counted(unread, "lease", "leases");
        unseen.push(format!("rows of {leases} that pgfresh could not read, as in isolation server"));
    }
    let steady = || leases.iter().filter_map(|lease| lease.steady_rows.as_ref());
    let tables: BTreeSet<_> = steady().flat_map(trials::SteadyRows::unsteady_tables).collect();
    if !tables.is_empty() {
        let tables: Vec<_> = tables.into_iter().collect();
        unseen.push(format!("rows of {}, which differ from run to run", tables.join(", ")));
    }
    if steady().next().is_some() && steady().all(trials::SteadyRows::is_empty) {
        unseen.push(
            "lost and doubled rows, because no table has a row at the end of a test: do the tests delete them?"
                .to_owned(),
        );
    }
    unseen
}

#[cfg(test)]
mod tests {
    use super::encloses;

    #[test]
    fn files_and_classes_enclose_their_tests() {
        for (outer, inner, expected) in [
            ("test_shop.py", "test_shop.py::test_pay", true),
            ("shop.PayTest", "shop.PayTest.pays", true),
            ("x.TestPay", "x.TestPay/twice", true),
            ("test_pay", "test_pay", true),
            ("test_pay", "test_pay_twice", false),
            ("test_pay", "test_payment", false),
        ] {
            assert_eq!(encloses(outer, inner), expected, "{outer} {inner}");
        }
    }
}
