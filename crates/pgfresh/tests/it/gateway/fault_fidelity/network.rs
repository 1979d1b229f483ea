//! Network between a client and a server that breaks a connection at a message.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common::client::message;

/// Place where the network breaks, relative to a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The server doesn't receive the message.
    Before,
    /// The server receives the message, and the connection breaks immediately.
    During,
    /// The server responds, but the client doesn't receive the response.
    After,
}

/// Interruption of the next connection whose client sends a given text.
#[derive(Debug, Clone)]
struct Cut {
    text: Vec<u8>,
    place: Place,
    is_silent: bool,
}

/// TCP proxy in front of a server's unix socket. Its threads end with their connections, and its listener ends
/// with the test process.
pub(super) struct Network {
    pub(super) address: String,
    cut: Arc<Mutex<Option<Cut>>>,
    refusal: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Network {
    pub(super) fn new(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(Mutex::new(None));
        let armed = Arc::clone(&cut);
        let refusal = Arc::new(Mutex::new(None::<Vec<u8>>));
        let refuses = Arc::clone(&refusal);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                client.set_nodelay(true).unwrap();
                if let Some(message) = refuses.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    // Read the startup message first, because unread bytes would reset the connection.
                    let _ = client.read(&mut [0; 8192]);
                    let _ = client.write_all(&message);
                    continue;
                }
                // The server might have ended.
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                carry(client, server, &armed);
            }
        });
        Self { address, cut, refusal }
    }

    /// Refuses the next connection with an error that consists of `fields`, as a server that is
    /// full or starting up does.
    pub(super) fn refuse(&self, fields: &[(u8, &str)]) {
        let fields = fields.iter().flat_map(|(code, text)| [&[*code], text.as_bytes(), b"\0"].concat());
        let message = message(b'E', &fields.chain([0]).collect::<Vec<_>>());
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }

    /// Breaks the connection whose client sends `text` next, once. Ignores the case of `text`.
    pub(super) fn cut(&self, text: &str, place: Place, is_silent: bool) {
        let cut = Cut { text: text.to_lowercase().into_bytes(), place, is_silent };
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
    }
}

/// Connection, and whether it has been broken.
struct Link {
    client: TcpStream,
    server: UnixStream,
    /// The client doesn't receive the next response.
    breaks: AtomicBool,
    is_silent: AtomicBool,
}

/// Forwards bytes in both directions until either side ends or the connection breaks.
fn carry(client: TcpStream, server: UnixStream, armed: &Arc<Mutex<Option<Cut>>>) {
    let (breaks, is_silent) = (AtomicBool::new(false), AtomicBool::new(false));
    let link = Arc::new(Link { client, server, breaks, is_silent });
    let (other, armed) = (Arc::clone(&link), Arc::clone(armed));
    thread::spawn(move || other.answers());
    thread::spawn(move || link.requests(&armed));
}

impl Link {
    fn answers(&self) {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = (&self.server).read(&mut bytes) {
            if self.breaks.load(Ordering::SeqCst) {
                return self.lose();
            }
            if (&self.client).write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        if !self.breaks.load(Ordering::SeqCst) {
            let _ = self.client.shutdown(Shutdown::Both);
        }
    }

    fn requests(&self, armed: &Mutex<Option<Cut>>) {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = (&self.client).read(&mut bytes) {
            let sent = &bytes[..count];
            if self.breaks.load(Ordering::SeqCst) {
                // The network is silent, and loses what the client sends.
                continue;
            }
            let cut = due(armed, sent);
            if let Some(cut) = &cut {
                self.is_silent.store(cut.is_silent, Ordering::SeqCst);
                self.breaks.store(true, Ordering::SeqCst);
            }
            let place = cut.map(|cut| cut.place);
            if place != Some(Place::Before) && (&self.server).write_all(sent).is_err() {
                break;
            }
            if matches!(place, Some(Place::Before | Place::During)) {
                self.lose();
            }
        }
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Ends both sides. Resets the client's connection unless the network is silent. The reset happens when
    /// both threads have ended.
    fn lose(&self) {
        if !self.is_silent.load(Ordering::SeqCst) {
            rustix::net::sockopt::set_socket_linger(&self.client, Some(Duration::ZERO)).unwrap();
            let _ = self.client.shutdown(Shutdown::Read);
        }
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// Returns the armed cut, once, if the client's bytes contain its text.
fn due(armed: &Mutex<Option<Cut>>, bytes: &[u8]) -> Option<Cut> {
    let bytes = bytes.to_ascii_lowercase();
    armed
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take_if(|cut| bytes.windows(cut.text.len()).any(|window| window == cut.text))
}
