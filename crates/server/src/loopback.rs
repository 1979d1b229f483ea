//! Opens a TCP port on loopback for programs that can't use a Unix socket, such as those with pgjdbc or sqlx. The port
//! forwards connections to the server's socket.

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

/// Maximum length of the connection queue, long enough that other users can't easily fill it. The kernel may
/// reduce this length.
const QUEUE_LENGTH: i32 = 4096;
/// Pause after an error in `accept`, for example when pgfresh has too many open files.
const PAUSE: Duration = Duration::from_millis(10);

/// The message that requests TLS. Source: the manual's "Message Formats", `SSLRequest`.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// TLS for programs that insist on it. The server itself doesn't offer TLS.
pub trait LoopbackEncryption: fmt::Debug + Send + Sync {
    /// Returns the root certificate in PEM format, which programs can use to verify the listener. Returns
    /// `None` if the listener uses the user's own certificate.
    fn root(&self) -> Option<String>;

    /// Forwards all bytes between `client` and `server` until both have closed their side. Uses TLS if
    /// `client` asks for it.
    ///
    /// # Errors
    /// Returns the error of the first side that fails.
    fn forward(&self, client: TcpStream, server: UnixStream) -> io::Result<()>;
}

/// An open listener. Dropping it closes the port to new connections.
///
/// Clients don't need a password, because the kernel knows which user opened a connection. The listener
/// accepts connections from pgfresh's own user and from root, both of which could also open the server's
/// socket. Rejecting a connection takes one query to the kernel, but no thread.
#[derive(Debug)]
pub struct LoopbackListener {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    listening: Option<JoinHandle<()>>,
}

/// The server's socket, and the encryption that the listener offers.
#[derive(Clone)]
struct Forwarding {
    socket: PathBuf,
    encryption: Option<Arc<dyn LoopbackEncryption>>,
    /// Number of connections whose last message was a rejected TLS request.
    refused: Arc<AtomicUsize>,
}

impl LoopbackListener {
    /// Opens a port that forwards to `server` and offers `encryption`. Returns `None` if the kernel doesn't
    /// report the owners of connections.
    ///
    /// # Errors
    /// Returns an error if the listener can't open a port or start a thread.
    pub fn open(
        server: &Server,
        encryption: Option<Arc<dyn LoopbackEncryption>>,
    ) -> io::Result<Option<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        sys::set_backlog(&listener, QUEUE_LENGTH)?;
        let address = listener.local_addr()?;
        let ourselves = TcpStream::connect(address)?;
        let remote = ourselves.local_addr()?;
        let _met = loop {
            let (met, peer) = listener.accept()?;
            // Another user may have connected first, so check that this is pgfresh's own connection.
            if peer == remote {
                break met;
            }
        };
        if !sys::is_own_loopback_peer(remote, address) {
            return Ok(None);
        }
        let closing = Arc::new(AtomicBool::new(false));
        let refused = Arc::<AtomicUsize>::default();
        let socket = server.run().socket_directory().join(SOCKET);
        let way = Forwarding { socket, encryption, refused: Arc::clone(&refused) };
        let listening = thread::Builder::new().spawn({
            let closing = Arc::clone(&closing);
            move || listen(&listener, address, &way, &closing)
        })?;
        Ok(Some(Self { address, closing, refused, listening: Some(listening) }))
    }

    /// Returns true if a program asked for TLS and, after the server rejected it, sent nothing more.
    #[must_use]
    pub fn has_rejected_tls(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }

    /// Returns the superuser's address for `database` on this port.
    #[must_use]
    pub fn address(&self, database: &str) -> Address {
        Address::at(self.address, None, database)
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        // Wake up the listening thread.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(listening) = self.listening.take().filter(|_| woken)
            && listening.join().is_err()
        {
            tracing::error!("the thread that listens on loopback has panicked");
        }
    }
}

fn listen(listener: &TcpListener, address: SocketAddr, way: &Forwarding, closing: &AtomicBool) {
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
        if sys::is_own_loopback_peer(remote, address) {
            let way = way.clone();
            // After any error, both peers see that the connection is closed, even if the thread can't be started.
            let led = thread::Builder::new().spawn(move || {
                if let Err(error) = way.forward(client) {
                    tracing::debug!(%error, "a connection over loopback has failed");
                }
            });
            if let Err(error) = led {
                tracing::warn!(%error, "could not start a thread for a connection over loopback");
            }
        } else {
            reject(client, begun.elapsed());
        }
    }
}

/// Resets a connection opened by another user, so that it doesn't linger in the kernel's socket table. The
/// check took `cost`. If the kernel had to list all sockets for the check, the listener pauses for three
/// times as long.
fn reject(client: TcpStream, cost: Duration) {
    if let Err(error) = sys::reset_on_close(&client) {
        tracing::debug!(%error, "could not reset a stranger's connection");
    }
    drop(client);
    if cost > Duration::from_millis(1) {
        thread::sleep((cost * 3).min(PAUSE * 10));
    }
}

impl Forwarding {
    /// Forwards all bytes in both directions until both peers have closed their side.
    fn forward(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = UnixStream::connect(&self.socket)?;
        match &self.encryption {
            Some(encryption) => encryption.forward(client, server),
            None => self.forward_unencrypted(&client, &server),
        }
    }

    #[expect(
        clippy::let_underscore_must_use,
        reason = "a direction that fails ends the connection, which both ends see"
    )]
    fn forward_unencrypted(&self, client: &TcpStream, mut server: &UnixStream) -> io::Result<()> {
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut heard = ClientReader { client, refused: &self.refused, is_request: false };
                let _ = io::copy(&mut heard, &mut server);
                let _ = server.shutdown(Shutdown::Write);
            });
            let copied = io::copy(&mut &*server, &mut &*client);
            // The server has closed the connection, so close it even if the client is still sending.
            let _ = client.shutdown(Shutdown::Both);
            copied.map(drop)
        })
    }
}

/// Reads a client's bytes and keeps track of rejected TLS requests. As long as such a request is the client's
/// last message, the client counts as refused.
struct ClientReader<'a> {
    client: &'a TcpStream,
    refused: &'a AtomicUsize,
    is_request: bool,
}

impl Read for ClientReader<'_> {
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
