//! Runs a command in the foreground while a server runs. Handles signals and exit codes, and detects when the command
//! or the server exits.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lease::Leases;
use server::Server;
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::{Cause, Origin};
use signal_hook::{SigId, flag, low_level};
use storage::Attempt;
use sys::{ProcessHandle, Signal};

use crate::cancellation::{SIGNALS, cannot_listen, heeded};
use crate::exit::ExitRequests;
use crate::failure::Failure;
use crate::notice::notice;

/// An event that interrupts pgfresh's wait.
#[derive(Debug)]
pub(crate) enum Event {
    /// pgfresh received a signal.
    Signal(Origin),
    /// The command exited.
    Ended(io::Result<ExitStatus>),
    /// All server processes exited.
    ServerGone,
    /// A panic left the leases in an unknown state.
    LeasesFailed,
    /// The process that started this one closed this process's standard input.
    LifelineClosed,
}

#[derive(Debug)]
pub(crate) struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    /// Signal handler that holds signals back until [`Events::deliver_signals`].
    signals: Option<SignalsInfo<WithOrigin>>,
    handle: Handle,
    /// Whether any signal has arrived. The signal handler itself sets the flag, whereas events come from another
    /// thread a little later.
    is_interrupted: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Drop for Events {
    /// Stops the thread that waits for signals. From then on, signals have no effect.
    fn drop(&mut self) {
        self.handle.close();
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

impl Events {
    /// Takes over SIGINT, SIGTERM and SIGHUP. The process and its command keep ignoring any of these signals that the
    /// process already ignored.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (sender, receiver) = channel();
        let handled = heeded(&SIGNALS);
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let register = |signal| {
            flag::register(signal, Arc::clone(&is_interrupted)).map_err(|error| cannot_listen(&error))
        };
        let registered = handled.clone().map(register).collect::<Result<_, _>>()?;
        let signals = SignalsInfo::<WithOrigin>::new(handled).map_err(|error| cannot_listen(&error))?;
        Ok(Self {
            sender,
            receiver,
            handle: signals.handle(),
            signals: Some(signals),
            is_interrupted,
            registered,
        })
    }

    /// Turns signals into events from now on. Returns the signals that have arrived since [`Events::listen`].
    pub(crate) fn deliver_signals(&mut self) -> Result<Vec<Origin>, Failure> {
        let Some(mut signals) = self.signals.take() else { return Ok(Vec::new()) };
        let early = signals.pending().collect();
        let sender = self.sender.clone();
        start(move || signals.forever().try_for_each(|origin| sender.send(Event::Signal(origin))))?;
        Ok(early)
    }

    /// Sends an event when `server` exits.
    pub(crate) fn watch_server(&self, server: &Server) -> Result<(), Failure> {
        let sender = self.sender.clone();
        // The receiver may already be gone, so ignore the error.
        Ok(server.on_end(move || drop(sender.send(Event::ServerGone)))?)
    }

    /// Sends an event if a panic leaves the leases in an unknown state.
    pub(crate) fn watch_leases(&self, leases: &Leases) {
        let sender = self.sender.clone();
        // The receiver may already be gone, so ignore the error.
        leases.when_failed(move || drop(sender.send(Event::LeasesFailed)));
    }

    /// Sends an event when standard input reaches its end.
    pub(crate) fn watch_lifeline(&self) -> Result<(), Failure> {
        self.watch(io::stdin(), Event::LifelineClosed)
    }

    /// Sends [`Event::ServerGone`] when `reader`, a connection to a server, reaches its end.
    pub(crate) fn watch_end_of(&self, reader: impl io::Read + Send + 'static) -> Result<(), Failure> {
        self.watch(reader, Event::ServerGone)
    }

    #[expect(clippy::let_underscore_must_use, reason = "an error is an end, too")]
    fn watch(&self, mut reader: impl io::Read + Send + 'static, end: Event) -> Result<(), Failure> {
        let sender = self.sender.clone();
        start(move || {
            let _ = io::copy(&mut reader, &mut io::sink());
            sender.send(end)
        })
    }

    pub(crate) fn next(&self) -> Event {
        self.receiver.recv().unwrap_or(Event::LifelineClosed)
    }

    /// Waits up to `timeout` for the next event. Returns `None` after the timeout.
    pub(crate) fn next_within(&self, timeout: Duration) -> Option<Event> {
        self.receiver.recv_timeout(timeout).ok()
    }

    fn watch_child(&self, mut child: Child) -> Result<(), Failure> {
        let sender = self.sender.clone();
        start(move || sender.send(Event::Ended(child.wait())))
    }
}

/// Terminates this process when its standard input reaches its end, because the starting process is then gone. The
/// guards (see [`ExitRequests::send`]) clean up.
pub(crate) fn end_with_lifeline(exit: ExitRequests) -> Result<(), Failure> {
    start(move || {
        // A read error also counts as the end of standard input.
        if let Err(error) = io::copy(&mut io::stdin(), &mut io::sink()) {
            tracing::debug!(%error, "cannot read standard input");
        }
        exit.send(ExitCode::SUCCESS);
    })
}

/// Spawns a thread that runs `work`.
fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<(), Failure> {
    thread::Builder::new().spawn(work).attempt("start", Path::new("thread"))?;
    Ok(())
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The command's own exit code, or 128 plus the number of the signal that killed the command.
    pub(crate) code: u8,
    /// True if pgfresh received a signal, such as SIGINT from Ctrl-C, while the command ran, or if a signal killed
    /// the command.
    pub(crate) interrupted: bool,
}

/// Runs `command` in this process group until the command exits, forwarding the signals that only this process
/// received. Prints a message if `server` exits before the command.
///
/// This function must run in the command's thread, because the kernel kills the command as soon as the thread that
/// spawned it exits.
pub(crate) fn run(server: Option<&Server>, mut command: Command) -> Result<Ended, Failure> {
    let mut events = Events::listen()?;
    sys::die_with_parent(&mut command);
    sys::restore_open_file_limit(&mut command);
    sys::restore_mask(&mut command);
    let child = command.spawn().map_err(|error| cannot_run(command.get_program(), &error))?;
    let handle = ProcessHandle::of(&child).map_err(|error| cannot_run(command.get_program(), &error))?;
    // The handlers are in place, so forward the signals that arrived before the command started.
    events.deliver_signals()?.iter().for_each(|origin| send(origin, &handle));
    events.watch_child(child)?;
    if let Some(server) = server {
        events.watch_server(server)?;
    }
    let mut reported = false;
    loop {
        let event = events.next();
        // If the server dies, the command may fail shortly before the kernel reports the postmaster's exit.
        let is_gone = |server: &&Server| match &event {
            Event::ServerGone => true,
            Event::Ended(Ok(status)) if !status.success() => !server.is_alive() || !server.is_listening(),
            _ => !server.is_alive(),
        };
        if !reported && let Some(server) = server.filter(is_gone) {
            notice!("pgfresh: the server went away while the command was running: {}", server.end_reason());
            reported = true;
        }
        match event {
            Event::Signal(origin) => pass_on(&origin, &handle),
            Event::Ended(status) => {
                let status = status
                    .map_err(|error| Failure::new(format!("could not wait for the command: {error}")))?;
                let code = exit_code(status);
                if code != 0
                    && !reported
                    && let Some(crash) = server.and_then(Server::last_crash)
                {
                    notice!("pgfresh: the server crashed while the command was running: {crash}");
                }
                let by_signal = status.signal().is_some_and(|signal| SIGNALS.contains(&signal));
                let interrupted = by_signal || events.is_interrupted.load(Ordering::Relaxed);
                return Ok(Ended { code, interrupted });
            }
            Event::ServerGone | Event::LeasesFailed | Event::LifelineClosed => {}
        }
    }
}

/// Forwards a signal if only this process received it. A terminal sends most signals to the whole process group, but
/// sends SIGHUP only to the session leader.
fn pass_on(origin: &Origin, handle: &ProcessHandle) {
    if origin.cause != Cause::Kernel || (origin.signal == SIGHUP && sys::leads_its_session()) {
        send(origin, handle);
    }
}

fn send(origin: &Origin, handle: &ProcessHandle) {
    let signal = match origin.signal {
        SIGINT => Signal::INT,
        SIGHUP => Signal::HUP,
        _ => Signal::TERM,
    };
    // The command may have just exited, so ignore the error.
    if let Err(error) = handle.signal(signal) {
        tracing::debug!(%error, ?signal, "could not pass on a signal");
    }
}

/// Returns a command's own exit code, or 128 plus the number of the signal that killed the command.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Returns a failure with the exit code a shell would use for this error. Source: POSIX, 2.8.2.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let failure = Failure::new(format!("could not run \"{}\": {error}", program.display())).exit_with(code);
    let remedy = sys::limit_hint(error)
        .unwrap_or("Write a program and its arguments after \"--\". For shell syntax, use: -- sh -c '…'.");
    failure.hint(remedy.to_owned())
}
