//! TCP port on loopback that leads to a server's socket, for programs that cannot use a socket: pgjdbc, sqlx.

use std::fmt;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Server;
use crate::address::{Address, SOCKET};

/// Length of the queue of new connections, so that those of other users do not fill it. The kernel may bound it further.
const WAITING: i32 = 4096;
/// Pause after an error of `accept`, for example because pgfresh has too many files open.
const PAUSE: Duration = Duration::from_millis(10);

/// Request for TLS. Source: the manual's "Message Formats", `SSLRequest`.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// TLS for programs that insist on it.
pub trait LoopbackEncryption: fmt::Debug + Send + Sync {
    /// Returns the root certificate in PEM by which programs can verify the listener; `None` if the user's own leads elsewhere.
    fn root(&self) -> Option<String>;

    /// Passes all bytes on between `client`, by TLS if it asks for that, and `server`, until both have ended.
    fn lead(&self, client: TcpStream, server: UnixStream) -> io::Result<()>;
}

/// Open listener. Dropping it closes the port to new connections.
///
/// It needs no password: the kernel knows which user has opened a connection, and the listener accepts those of pgfresh's own user
/// and of root. Both could open the socket as well. Other connections cost one query of the kernel, and no thread.
#[derive(Debug)]
pub struct LoopbackListener {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    listening: Option<JoinHandle<()>>,
}

/// Server behind the listener, and the encryption that the listener offers.
#[derive(Clone)]
struct Way {
    socket: PathBuf,
    encryption: Option<Arc<dyn LoopbackEncryption>>,
    /// Number of connections whose last request was for TLS, which the server has refused.
    refused: Arc<AtomicUsize>,
}

impl LoopbackListener {
    /// Opens a port to `server`, which offers `encryption`. `None` if the kernel does not report the owners of connections.
    pub fn open(
        server: &Server,
        encryption: Option<Arc<dyn LoopbackEncryption>>,
    ) -> io::Result<Option<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        sys::bound_waiting(&listener, WAITING)?;
        let address = listener.local_addr()?;
        let ourselves = TcpStream::connect(address)?;
        let remote = ourselves.local_addr()?;
        let _met = loop {
            let (met, peer) = listener.accept()?;
            // Another user may have connected first.
            if peer == remote {
                break met;
            }
        };
        if !sys::is_our_neighbour(remote, address) {
            return Ok(None);
        }
        let closing = Arc::new(AtomicBool::new(false));
        let refused = Arc::<AtomicUsize>::default();
        let socket = server.run().socket_directory().join(SOCKET);
        let way = Way { socket, encryption, refused: Arc::clone(&refused) };
        let listening = thread::Builder::new().spawn({
            let closing = Arc::clone(&closing);
            move || listen(&listener, address, &way, &closing)
        })?;
        Ok(Some(Self { address, closing, refused, listening: Some(listening) }))
    }

    /// Whether a program asked for TLS, got a refusal and sent nothing more.
    #[must_use]
    pub fn has_refused_tls(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }

    /// Returns the address of `database` on this port, as the superuser.
    #[must_use]
    pub fn address(&self, database: &str) -> Address {
        Address::at(self.address, None, database)
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        // Wakes the listening thread.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(listening) = self.listening.take().filter(|_| woken)
            && listening.join().is_err()
        {
            tracing::error!("the thread that listens on loopback has panicked");
        }
    }
}

fn listen(listener: &TcpListener, address: SocketAddr, way: &Way, closing: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if closing.load(Ordering::Relaxed) {
            return;
        }
        let Ok((client, remote)) = accepted else {
            thread::sleep(PAUSE);
            continue;
        };
        let begun = Instant::now();
        if sys::is_our_neighbour(remote, address) {
            let way = way.clone();
            // After any error, also without a thread, both ends see the end of their connection.
            let led = thread::Builder::new().spawn(move || {
                if let Err(error) = way.lead(client) {
                    tracing::debug!(%error, "a connection over loopback has failed");
                }
            });
            if let Err(error) = led {
                tracing::warn!(%error, "could not start a thread for a connection over loopback");
            }
        } else {
            turn_away(client, begun.elapsed());
        }
    }
}

/// Resets the connection of another user, so that the kernel's table of sockets has no entry of it. The check took `cost`. If the
/// kernel had to list all sockets for it, the listener pauses for three times that.
fn turn_away(client: TcpStream, cost: Duration) {
    if let Err(error) = sys::reset_at_end(&client) {
        tracing::debug!(%error, "could not reset a stranger's connection");
    }
    drop(client);
    if cost > Duration::from_millis(1) {
        thread::sleep((cost * 3).min(PAUSE * 10));
    }
}

impl Way {
    /// Forwards all bytes in both directions, until both have ended.
    fn lead(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = UnixStream::connect(&self.socket)?;
        match &self.encryption {
            Some(encryption) => encryption.lead(client, server),
            None => self.lead_in_clear(&client, &server),
        }
    }

    #[expect(
        clippy::let_underscore_must_use,
        reason = "a direction that fails ends the connection, which both ends see"
    )]
    fn lead_in_clear(&self, client: &TcpStream, mut server: &UnixStream) -> io::Result<()> {
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut heard = Heard { client, refused: &self.refused, is_request: false };
                let _ = io::copy(&mut heard, &mut server);
                let _ = server.shutdown(Shutdown::Write);
            });
            let copied = io::copy(&mut &*server, &mut &*client);
            // The client may still be sending, but the server has ended.
            let _ = client.shutdown(Shutdown::Both);
            copied.map(drop)
        })
    }
}

/// Reader of a client. It counts the client as refused while a request for TLS is the last that the client has sent.
struct Heard<'a> {
    client: &'a TcpStream,
    refused: &'a AtomicUsize,
    is_request: bool,
}

impl Read for Heard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.client.read(buffer)?;
        if count > 0 && self.is_request {
            self.refused.fetch_sub(1, Ordering::Relaxed);
        }
        if count > 0 {
            self.is_request = buffer[..count] == TLS_REQUEST;
            self.refused.fetch_add(usize::from(self.is_request), Ordering::Relaxed);
        }
        Ok(count)
    }
}
