//! The machine that a diagnosis belongs to, without anything that would name it.

use std::fs;

use report::Report;
use sys::Roots;

/// Adds processor, kernel and load.
pub(crate) fn describe(report: &mut Report, roots: &Roots) {
    let read = |file: &str| fs::read_to_string(roots.procfs.join(file)).unwrap_or_default();
    let text = read("cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or_else(|_| "unknown".into(), |n| n.to_string());
    let model = model.map_or("unknown", |(_, name)| name.trim());
    report.add_environment("processor", format!("{cores} cores, {model}"));
    report.add_environment("kernel", read("sys/kernel/osrelease").trim());
    report.add_environment("load before", read("loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "));
}
