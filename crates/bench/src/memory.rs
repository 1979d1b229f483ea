//! Measures how much memory pgfresh itself needs while serving, excluding the server's memory.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use storage::Attempt;

use crate::BenchError;

/// Each process's peak resident memory, in bytes. Source: proc(5), `VmHWM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peak {
    /// The process that owns the server and serves clients. `None` if the system doesn't provide the value.
    pub(crate) owner: Option<u64>,
    /// The guard, a process that cleans up after the owner. `None` if the system doesn't list child processes.
    pub(crate) guard: Option<u64>,
}

/// Runs the command `serve` until it is ready and returns its peak memory. The command must write a line as soon as it
/// is ready and exit when its standard input closes.
pub(crate) fn measure_service(mut serve: Command) -> Result<Peak, BenchError> {
    let program = serve.get_program().to_owned();
    serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = serve.spawn().attempt("run", Path::new(&program))?;
    let peak = read_peak(&mut child);
    drop(child.stdin.take());
    let status = child.wait().attempt("wait for", Path::new(&program))?;
    BenchError::check_status("pgfresh serve", status, Path::new(""))?;
    peak
}

fn read_peak(child: &mut Child) -> Result<Peak, BenchError> {
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
    output.read_line(&mut line).attempt("read from", Path::new("pgfresh serve"))?;
    let pid = child.id();
    let is_guard = |pid: &u32| sys::command_line(*pid).starts_with(b"pgfresh\0");
    let guard = sys::children_of(pid).into_iter().find(is_guard).map(peak_of).transpose()?.flatten();
    Ok(Peak { owner: peak_of(pid)?, guard })
}

/// Returns this process's current resident memory, in bytes, or `None` if the system doesn't provide the value.
pub(crate) fn resident() -> Result<Option<u64>, BenchError> {
    Ok(if_known(sys::resident_memory(std::process::id())).attempt("examine", Path::new("this process"))?)
}

fn peak_of(pid: u32) -> Result<Option<u64>, BenchError> {
    Ok(if_known(sys::peak_memory(pid)).attempt("examine", Path::new("pgfresh"))?)
}

/// Returns `None` for a fact that the system doesn't provide.
pub(crate) fn if_known<T>(fact: io::Result<T>) -> io::Result<Option<T>> {
    match fact {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        fact => fact.map(Some),
    }
}
