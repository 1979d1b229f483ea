//! `pgfresh run --compare`: the same command in turn on a durable server on disk and on one of ours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use ::template::{Maker, Wishes};
use bench::runner::{Contender, Phases, Timed, run_in_turn};
use report::{Cell, Column, Factor, Interval, Quantity, Report, Sample, Table, Unit};
use server::Preset;
use storage::Wish as Place;

use super::profile;
use crate::cli::{Options, Run};
use crate::config;
use crate::failure::Failure;
use crate::foreground;
use crate::onlooker::Onlooker;
use crate::service::Wish;

/// From this exit code on, a signal has ended the command.
const SIGNALLED: u8 = 128;
/// Lines of the command's output that are shown if it failed.
const LAST_LINES: usize = 20;
/// Words behind a number by which test runners count.
const COUNTED: [&str; 9] =
    ["passed", "failed", "failures", "errors", "error", "skipped", "passing", "failing", "pending"];

/// How one run of the command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    code: u8,
    /// What its test runner has counted, by word.
    counted: BTreeMap<String, u64>,
}

/// One of the two, and all that came of its runs.
struct Side<'a> {
    name: &'static str,
    maker: &'a Maker,
    ended: Vec<Ended>,
    last_lines: String,
}

pub(super) fn execute(options: &Options, arguments: &Run) -> Result<ExitCode, Failure> {
    let wishes = config::wishes(options)?;
    let durable = Wishes { place: Place::Disk, preset: Preset::Durable, ..wishes.clone() };
    let makers = [super::maker_for(options, durable)?, super::maker_for(options, wishes)?];
    for maker in &makers {
        super::prepare(options, maker)?;
    }
    let [stock, ours] = &makers;
    let mut sides = [Side::new("durable, on disk", stock), Side::new("pgfresh", ours)];
    let mut onlooker = Onlooker::listen(options)?;
    let [one, other] = &mut sides;
    let mut contenders =
        [one, other].map(|side| Contender::new(side.name, move || side.run(options, arguments)));
    let (timed, end) = run_in_turn(&mut contenders, 0, arguments.rounds, &mut onlooker);
    drop(contenders);
    onlooker.finish();
    end?;
    let comparison = Comparison { timed, sides: &sides, command: profile::words(&arguments.command) };
    let report = comparison.report();
    profile::tell(options.quiet, &comparison.summary(), &report, &|| report.to_html(""), &arguments.report)?;
    let codes = sides.iter().flat_map(|side| &side.ended).map(|ended| ended.code);
    Ok(ExitCode::from(codes.max().unwrap_or_default()))
}

impl<'a> Side<'a> {
    fn new(name: &'static str, maker: &'a Maker) -> Self {
        Self { name, maker, ended: Vec::new(), last_lines: String::new() }
    }

    /// Runs the command once on a new server.
    fn run(&mut self, options: &Options, arguments: &Run) -> Result<Phases, Failure> {
        let begun = Instant::now();
        let wish = Wish::new(options)?.with(&arguments.care);
        let service = super::serve(options, self.maker, wish)?;
        let path = service.server.run().path().join("output");
        let cannot = |error| Failure::new(format!("could not write \"{}\": {error}", path.display()));
        let output = File::options().append(true).create_new(true).open(&path).map_err(cannot)?;
        let mut command = super::run::command(arguments, &service)?;
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(cannot)?).stderr(output);
        let started = begun.elapsed();
        let running = Instant::now();
        let code = foreground::run(Some(&service.server), command)?;
        let ran = running.elapsed();
        let text =
            fs::read(&path).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let stopping = Instant::now();
        super::stop(options, service)?;
        let stopped = stopping.elapsed();
        if code != 0 {
            let lines: Vec<&str> = text.lines().collect();
            self.last_lines = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        }
        self.ended.push(Ended { code, counted: counted(&text) });
        if code >= SIGNALLED {
            let failure = Failure::new(format!("the command was ended by signal {}", code - SIGNALLED));
            return Err(failure.exit_with(code));
        }
        Ok(vec![("start", started), ("suite", ran), ("stop", stopped)])
    }
}

/// What test runners count in `text`: "272 passed", "Tests: 3 failed", "ok. 7 passed"; the sums by word.
fn counted(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> =
            line.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let word = pair[1].to_ascii_lowercase();
            if let Ok(count) = pair[0].parse::<u64>()
                && COUNTED.contains(&word.as_str())
            {
                *sums.entry(word).or_default() += count;
            }
        }
    }
    sums
}

/// What came of both.
struct Comparison<'a> {
    timed: Vec<Timed>,
    sides: &'a [Side<'a>; 2],
    command: String,
}

impl Comparison<'_> {
    /// How many times as fast ours is: with a 95 % interval from six rounds on.
    fn gain(&self, of: impl Fn(&Timed) -> Sample) -> Option<(Factor, Sample)> {
        let [stock, ours] = &self.timed[..] else { return None };
        let ratios = of(stock).ratio_to(&of(ours)).ok()?;
        let point = ratios.median()?;
        Some((Interval::of_median(&ratios).map_or(Factor::Point(point), Factor::Interval), ratios))
    }

    /// The gain in words: with its interval, or else with the extremes of so few rounds.
    fn gain_in_words(&self, of: impl Fn(&Timed) -> Sample) -> Option<String> {
        Some(match self.gain(of)? {
            (factor @ Factor::Interval(_), _) => factor.to_string(),
            (Factor::Point(point), ratios) => match (ratios.min(), ratios.max()) {
                (Some(least), Some(most)) if ratios.len() > 1 => {
                    format!("{point} ({least} to {most} in {} rounds)", ratios.len())
                }
                _ => format!("{point} in one round"),
            },
        })
    }

    /// Whether all runs ended alike.
    fn verdict(&self) -> String {
        let ended: Vec<&Ended> = self.sides.iter().flat_map(|side| &side.ended).collect();
        let Some(first) = ended.first() else { return "Nothing was run to its end.".to_owned() };
        let counted: Vec<String> =
            first.counted.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let counted = if counted.is_empty() { String::new() } else { format!(", {}", counted.join(", ")) };
        if ended.iter().all(|one| one == first) {
            return format!("All {} runs ended alike: exit code {}{counted}.", ended.len(), first.code);
        }
        let of_side = |side: &Side<'_>| {
            let runs = side.ended.iter().map(|ended| {
                let counted: Vec<String> =
                    ended.counted.iter().map(|(word, count)| format!(", {count} {word}")).collect();
                format!("exit code {}{}", ended.code, counted.concat())
            });
            format!("{}: {}", side.name, runs.collect::<Vec<_>>().join("; "))
        };
        format!("Not all runs ended alike. {}.", self.sides.each_ref().map(of_side).join(". "))
    }

    fn summary(&self) -> String {
        let suite = |timed: &Timed| timed.sum(&["suite"]);
        let median =
            |timed: &Timed| suite(timed).median().map_or_else(String::new, |median| median.to_string());
        let mut lines = Vec::new();
        if let ([stock, ours], Some(gain)) = (&self.timed[..], self.gain_in_words(suite)) {
            lines.push(format!("pgfresh: {gain} as fast: {} → {}", median(stock), median(ours)));
        }
        lines.push(format!("pgfresh: {}", self.verdict()));
        for Side { name, last_lines, .. } in self.sides.iter().filter(|side| !side.last_lines.is_empty()) {
            lines.push(format!("pgfresh: the last lines of a run that failed ({name}):\n{last_lines}"));
        }
        lines.join("\n") + "\n"
    }

    fn report(&self) -> Report {
        let mut report = Report::new(format!("Comparison of {}", self.command));
        let version = self.sides[1].maker.installation.version().to_string();
        report.add_environment("PostgreSQL", version);
        let numbers = ["start", "suite", "stop", "all of it"].map(Column::right);
        let mut table = Table::new("Times", [Column::left("server")].into_iter().chain(numbers));
        for timed in &self.timed {
            let phases = ["start", "suite", "stop"].map(|name| timed.sum(&[name]).median().into());
            table.add_row(
                [Cell::from(timed.name())].into_iter().chain(phases).chain([timed.total().median().into()]),
            );
        }
        report.add_table(table);
        let mut table = Table::new(
            "How many times as fast",
            [Column::left("what"), Column::right("gain"), Column::left("with its uncertainty")],
        );
        for (name, phases) in [("suite", &["suite"][..]), ("all of it", &["start", "suite", "stop"])] {
            let of = |timed: &Timed| timed.sum(phases);
            let point = self.gain(of).map(|(factor, _)| Quantity::new(factor.point(), Unit::Ratio));
            table.add_row([name.into(), point.into(), self.gain_in_words(of).into()]);
        }
        report.add_table(table);
        report.add_notes([self.verdict()]);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_understood_by_their_words() {
        for (text, expected) in [
            ("==== 272 passed, 1 skipped in 19.41s ====", vec![("passed", 272), ("skipped", 1)]),
            (
                "test result: ok. 7 passed; 0 failed; 0 ignored\ntest result: ok. 3 passed; 1 failed",
                vec![("failed", 1), ("passed", 10)],
            ),
            ("Tests:       3 failed, 12 passed, 15 total", vec![("failed", 3), ("passed", 12)]),
            ("  8 passing (2s)\n  1 pending", vec![("passing", 8), ("pending", 1)]),
            ("30 examples, 2 failures", vec![("failures", 2)]),
            ("ok  \tlibrary/web\t0.3s", vec![]),
            ("", vec![]),
        ] {
            let expected = expected.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
            assert_eq!(counted(text), expected, "{text}");
        }
    }
}
