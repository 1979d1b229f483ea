//! Describes the machine that ran a benchmark, without anything that could identify the machine.

use report::Report;
use template::Provisioner;

/// Adds everything that affects the results: the machine, the server and the location of the server's data.
pub(crate) fn describe(report: &mut Report, provisioner: &Provisioner, place: &str, load: &str) {
    machine(report, load);
    report.add_environment("PostgreSQL", provisioner.installation.version().to_string());
    report.add_environment("place", place);
    let account = if provisioner.account.foreign { "another account than ours" } else { "our own account" };
    report.add_environment("servers run as", account);
}

/// Adds the CPU, the memory, the kernel and the load to the report.
pub(crate) fn machine(report: &mut Report, load: &str) {
    let cores = std::thread::available_parallelism().map_or_else(|_| "unknown".into(), |n| n.to_string());
    report.add_environment("processor", format!("{cores} cores, {}", or_unknown(sys::processor())));
    report.add_environment("memory", or_unknown(sys::total_memory().map(storage::human_bytes)));
    report.add_environment("kernel", or_unknown(sys::kernel()));
    report.add_environment("load before", load);
}

/// Returns the load averages over 1, 5 and 15 minutes.
pub(crate) fn load_averages() -> String {
    or_unknown(sys::load_average())
}

fn or_unknown(known: Option<String>) -> String {
    known.unwrap_or_else(|| "unknown".to_owned())
}
