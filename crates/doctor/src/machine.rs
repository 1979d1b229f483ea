//! Describes the machine in a diagnosis, without anything that could identify the machine.

use std::fs;

use report::Report;
use sys::Roots;

/// Adds the CPU, the kernel and the load to the report.
pub(crate) fn describe(report: &mut Report, roots: &Roots) {
    let read = |file: &str| fs::read_to_string(roots.procfs.join(file)).unwrap_or_default();
    let text = read("cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown", |(_, name)| name.trim());
    report.add_environment("processor", format!("{} cores, {model}", cores()));
    report.add_environment("kernel", read("sys/kernel/osrelease").trim());
    let load = read("loadavg");
    report.add_environment("load before", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    let running = load.split(' ').next().and_then(|load| load.parse::<f64>().ok()).unwrap_or(0.0);
    if running > report::as_f64(cores()) {
        report.add_notes([format!(
            "{running} processes were waiting for a processor before the measurement, so its times are uncertain. \
            Measure again when the machine is idle."
        )]);
    }
}

/// Returns the number of CPUs available to this process.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
