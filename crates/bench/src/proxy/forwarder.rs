//! Implements a bare forwarder, which only does the work that no gateway can avoid. A single thread waits, reads and
//! writes without ever inspecting the bytes.
//!
//! For each query, the forwarder waits, reads and writes once in each direction. The kernel needs the same time for
//! this in any program.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use storage::Attempt;
use sys::EventQueue;

use crate::BenchError;

/// The name of the thread.
pub(super) const THREAD: &str = "forwarder";
/// Size of the read buffer, in bytes.
const BUFFER: usize = 64 << 10;
/// Event numbers for a new connection and for the request to stop.
const NEW_CONNECTION: u64 = 0;
const STOP: u64 = 1;
/// Event number for the first session's client. The following numbers are for that session's server, for the second
/// session's client, and so on.
const FIRST_SESSION: u64 = 2;

/// A running forwarder.
pub(super) struct Forwarder {
    pub(super) address: SocketAddr,
    ends: UnixStream,
    thread: JoinHandle<io::Result<()>>,
}

struct Session {
    client: TcpStream,
    server: UnixStream,
}

struct EventLoop {
    listener: TcpListener,
    events: EventQueue,
    server: PathBuf,
    sessions: Vec<Option<Session>>,
    buffer: Vec<u8>,
}

impl Forwarder {
    /// Forwards connections from a loopback port to the Unix socket `server`.
    pub(super) fn start(server: &Path) -> Result<Self, BenchError> {
        let begin = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let (address, (ends, ended)) = (listener.local_addr()?, UnixStream::pair()?);
            let mut events = EventQueue::new()?;
            events.add(&listener, NEW_CONNECTION)?;
            events.add(&ended, STOP)?;
            let work = EventLoop {
                listener,
                events,
                server: server.to_owned(),
                sessions: Vec::new(),
                buffer: vec![0; BUFFER],
            };
            let thread = std::thread::Builder::new().name(THREAD.to_owned());
            let thread = thread.spawn(move || work.forward(ended))?;
            Ok::<_, io::Error>(Self { address, ends, thread })
        };
        Ok(begin().attempt("forward to", server)?)
    }

    /// Stops the forwarder's thread.
    pub(super) fn stop(self) -> Result<(), BenchError> {
        drop(self.ends);
        let ended = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(ended.attempt("forward from", Path::new("a client"))?)
    }
}

impl EventLoop {
    /// Forwards bytes until `_ended` becomes readable because the other end was closed.
    fn forward(mut self, _ended: UnixStream) -> io::Result<()> {
        let mut ready = Vec::with_capacity(64);
        loop {
            self.events.wait(&mut ready)?;
            for event in ready.drain(..) {
                match event {
                    NEW_CONNECTION => self.accept()?,
                    STOP => return Ok(()),
                    number => self.forward_side(number - FIRST_SESSION),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let (client, _) = self.listener.accept()?;
        client.set_nodelay(true)?;
        let server = UnixStream::connect(&self.server)?;
        let number = FIRST_SESSION + 2 * self.sessions.len() as u64;
        self.events.add(&client, number)?;
        self.events.add(&server, number + 1)?;
        self.sessions.push(Some(Session { client, server }));
        Ok(())
    }

    /// Forwards bytes in one direction. Closes the session if the client or the server is gone.
    fn forward_side(&mut self, side: u64) {
        let place = usize::try_from(side / 2).unwrap_or(usize::MAX);
        let Some(Some(session)) = self.sessions.get_mut(place) else { return };
        let Session { client, server } = session;
        let (from, to): (&mut dyn Read, &mut dyn Write) =
            if side.is_multiple_of(2) { (client, server) } else { (server, client) };
        let passed =
            from.read(&mut self.buffer).and_then(|count| to.write_all(&self.buffer[..count]).map(|()| count));
        if passed.map_or(true, |count| count == 0) {
            let first = FIRST_SESSION + side - side % 2;
            self.events.remove(first);
            self.events.remove(first + 1);
            self.sessions[place] = None;
        }
    }
}
