//! Kills all commands at random moments, and checks that nothing is left after the next start of pgfresh.
//!
//! ```sh
//! PGFRESH_TEST_DEPTH=40 PGFRESH_KILLS_SEED=7 cargo test -p pgfresh --test it kills:: -- --nocapture
//! ```
//! The seed repeats the plan: commands, victims, signals and moments. The other running processes vary. As root, the
//! test runs in new namespaces, so that every leftover is pgfresh's.

mod life;
mod machine;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::depth::rounds;
use crate::common::random::Random;
use crate::common::{Scene, User, WAIT_TIMEOUT, ground, is_root};
use life::{Kind, Life, Plan};
use machine::Machine;

/// Time for a guard's cleanup. After that, the next start cleans up.
const BOUND: Duration = Duration::from_secs(2);

/// Results of killing one command.
#[derive(Default)]
struct Figures {
    kills: usize,
    hit: usize,
    /// Number of kills with leftovers after two seconds, which the next start must remove.
    later: usize,
    /// Number of kills with leftovers after the next start.
    left: usize,
    /// Longest time that a guard took to clean up.
    longest: Duration,
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn kills_at_any_moment_leave_nothing() {
    if is_root() && !machine::is_private() {
        let (_, module) = module_path!().split_once("::").expect("a module of this program");
        return machine::run_privately(&format!("{module}::kills_at_any_moment_leave_nothing"));
    }
    let kills = rounds(25) as usize;
    let seed = number("PGFRESH_KILLS_SEED").unwrap_or_else(|| Random::new().number() % 1_000_000);
    println!("{kills} kills with PGFRESH_KILLS_SEED={seed}");
    let mut random = Random::seeded(seed);
    let mut homes: Vec<Home> = User::all().iter().map(|&user| Home::new(user)).collect();
    let mut figures: BTreeMap<&'static str, Figures> = BTreeMap::new();
    let mut complaints = Vec::new();
    for number in 0..kills {
        let users = homes.len();
        let home = &mut homes[random.below(users)];
        let kind = Kind::ALL[number % Kind::ALL.len()];
        let span = home.span(kind);
        let plan = Plan::draw(kind, span, &mut random);
        let context = format!("kill {number} of seed {seed}, as {:?}: {plan:?}", home.scene.user);
        let before = complaints.len();
        play(home, &plan, &context, figures.entry(kind.name()).or_default(), &mut complaints);
        for complaint in &complaints[before..] {
            println!("{complaint}");
        }
    }
    print(&figures);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let hit: usize = figures.values().map(|figures| figures.hit).sum();
    assert!(hit * 2 > kills, "only {hit} of {kills} found their victim");
}

/// Scene for one user's commands, with the base image and other shared files.
struct Home {
    scene: Scene,
    machine: Machine,
    spans: BTreeMap<&'static str, Duration>,
}

impl Home {
    fn new(user: User) -> Self {
        let scene = Scene::with_empty_cache(user);
        ground::psql();
        assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
        Self { scene, machine: Machine::look(), spans: BTreeMap::new() }
    }

    fn npm(&self) -> PathBuf {
        self.scene.directory.join("npm")
    }

    /// Returns slightly more than the time that an undisturbed command takes.
    fn span(&mut self, kind: Kind) -> Duration {
        if let Some(span) = self.spans.get(kind.name()) {
            return *span;
        }
        let own = kind.scene(self.scene.user);
        let scene = own.as_ref().unwrap_or(&self.scene);
        let begun = Instant::now();
        let status = Life::begin(scene, &self.npm(), kind, 0).finish();
        assert!(status.success(), "undisturbed, {} ended with {status}", kind.name());
        let span = begun.elapsed().mul_f64(1.1);
        Life::stop(scene, kind);
        self.spans.insert(kind.name(), span);
        span
    }
}

fn play(home: &Home, plan: &Plan, context: &str, figures: &mut Figures, complaints: &mut Vec<String>) {
    let own = plan.kind.scene(home.scene.user);
    let scene = own.as_ref().unwrap_or(&home.scene);
    let mut life = Life::begin(scene, &home.npm(), plan.kind, plan.serial);
    scene.watch(life.pid(), plan.moment);
    figures.kills += 1;
    figures.hit += usize::from(life.kill(plan));
    life.finish();
    Life::stop(scene, plan.kind);
    let left = || [scene.leftovers(), home.machine.left(scene)].concat();
    let begun = Instant::now();
    let is_clean = within(BOUND, || left().is_empty());
    if is_clean {
        figures.longest = figures.longest.max(begun.elapsed());
        return;
    }
    let first = left();
    figures.later += 1;
    if !plan.kills_guard() {
        println!("{context}: after {BOUND:?}, with a load of {}: {first:?}", machine::load());
    }
    let next = scene.run(["run", "--", "true"]);
    if next.code != Some(0) {
        complaints.push(format!("{context}: the next start fails: {next}"));
    }
    if !within(WAIT_TIMEOUT, || left().is_empty()) {
        figures.left += 1;
        complaints.push(format!("{context}: left behind:\n{}", left().join("\n")));
        machine::clear(scene);
    }
}

/// Whether `condition` becomes true within `bound`.
fn within(bound: Duration, condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if begun.elapsed() >= bound {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn print(figures: &BTreeMap<&'static str, Figures>) {
    println!(
        "\n| command | kills | found their victim | left to the next start | left after it | gone after, at most |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, Figures { kills, hit, later, left, longest }) in figures {
        println!("| {name} | {kills} | {hit} | {later} | {left} | {:.2} s |", longest.as_secs_f64());
    }
}
