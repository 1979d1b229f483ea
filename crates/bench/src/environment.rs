//! The machine that a result belongs to, without anything that would name it.

use std::fs;

use report::Report;
use template::Provisioner;

/// Adds what the results depend on: the machine, server, place.
pub(crate) fn describe(report: &mut Report, provisioner: &Provisioner, place: &str, load: &str) {
    machine(report, load);
    report.add_environment("PostgreSQL", provisioner.installation.version().to_string());
    report.add_environment("place", place);
    let account = if provisioner.account.foreign { "another account than ours" } else { "our own account" };
    report.add_environment("servers run as", account);
}

/// Adds cores, memory, kernel and load.
pub(crate) fn machine(report: &mut Report, load: &str) {
    let cores = std::thread::available_parallelism().map_or_else(|_| "unknown".into(), |n| n.to_string());
    report.add_environment("processor", format!("{cores} cores, {}", processor()));
    report.add_environment("memory", memory());
    report.add_environment("kernel", first_line("/proc/sys/kernel/osrelease"));
    report.add_environment("load before", load);
}

/// The mean numbers of running processes over the last 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    first_line("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| storage::human_bytes(kib * 1024))
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
