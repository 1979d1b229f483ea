//! Runs pgbench, PostgreSQL's own benchmark program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use report::PhaseTimes;
use server::{Installation, SUPERUSER};
use storage::Attempt;

use crate::BenchError;
use crate::client::Address;

/// The pgbench program of an installation.
#[derive(Debug)]
pub(crate) struct Pgbench {
    program: PathBuf,
}

impl Pgbench {
    /// Finds the installation's pgbench.
    pub(crate) fn find(installation: &Installation) -> Result<Self, BenchError> {
        let program = installation.client("pgbench").ok_or(BenchError::NoProgram { program: "pgbench" })?;
        Ok(Self { program })
    }

    /// Creates pgbench's tables, with `scale` branches of 15 MB each.
    pub(crate) fn prepare(
        &self,
        address: &Address,
        database: &str,
        scale: u32,
        more: &[&str],
    ) -> Result<(), BenchError> {
        let scale = scale.to_string();
        let arguments = [&["-i", "-I", "dtgvp", "-q", "-s", &scale], more].concat();
        self.run(address, database, &arguments).map(drop)
    }

    /// Runs pgbench for `seconds` seconds. Returns the mean time between two consecutive transactions, which may belong
    /// to different clients.
    pub(crate) fn time(
        &self,
        address: &Address,
        database: &str,
        clients: u32,
        seconds: u32,
        more: &[&str],
    ) -> Result<PhaseTimes, BenchError> {
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        let arguments = [&["-n", "-c", &clients, "-T", &seconds], more].concat();
        let output = self.run(address, database, &arguments)?;
        let rate = parse_rate(&output).ok_or(BenchError::UnexpectedOutput { program: "pgbench" })?;
        Ok(vec![("a transaction", Duration::from_secs_f64(1.0 / rate))])
    }

    /// Runs pgbench and waits for it to exit. Returns an error if any of its clients fails.
    fn run(&self, address: &Address, database: &str, arguments: &[&str]) -> Result<String, BenchError> {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        match address {
            Address::Tcp(address, password) => {
                command.arg("-h").arg(address.ip().to_string()).arg("-p").arg(address.port().to_string());
                command.env("PGPASSWORD", password);
            }
            Address::Unix(file) => {
                command.arg("-h").arg(file.parent().unwrap_or(Path::new("/"))).args(["-p", "5432"]);
            }
        }
        command.args(["-U", SUPERUSER]).args(arguments).arg(database).stdin(Stdio::null());
        // Run pgbench in a new session, because the kernel divides CPU time among sessions first, and each backend has
        // its own session. Otherwise, a gateway in this process would share its CPU time with pgbench, while a proxy
        // in another process wouldn't. Source: sched(7), autogroup.
        sys::new_session(&mut command);
        let output = command.output().attempt("run", &self.program)?;
        if !output.status.success() {
            let last_words = String::from_utf8_lossy(&output.stderr).lines().last().map(str::to_owned);
            return Err(BenchError::Program {
                program: "pgbench".to_owned(),
                status: output.status,
                last_line: last_words,
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Parses the rate in transactions per second. Before version 14, pgbench prints two rates, and the first rate
/// includes the time for connecting.
fn parse_rate(output: &str) -> Option<f64> {
    let mut rates = output.lines().filter_map(|line| line.strip_prefix("tps = "));
    rates.next_back()?.split(' ').next()?.parse().ok().filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn connecting_does_not_count() {
        let of_13 = "latency average = 11.732 ms\ntps = 85.184871 (including connections establishing)\n\
                     tps = 85.296346 (excluding connections establishing)\n";
        assert_eq!(parse_rate(of_13), Some(85.296_346));
        assert_eq!(parse_rate("tps = 1234.5 (without initial connection time)\n"), Some(1234.5));
        assert_eq!(parse_rate("tps = 0.000000 (without initial connection time)\n"), None);
        assert_eq!(parse_rate("latency average = 11.732 ms\n"), None);
    }
}
