//! Implements the floor for every session: a server that only responds to a session's startup and query messages.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use pgwire::PASSWORD_REQUEST;
use storage::Attempt;

use super::minimal_gateway::{READY, STARTUP_RESPONSE};
use crate::BenchError;
use crate::client::{Address, RESPONSE_TIMEOUT};

/// A server with one thread per session. It stops accepting sessions when dropped.
pub(super) struct EchoServer {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    pub(super) fn open() -> Result<Self, BenchError> {
        let here = Path::new("127.0.0.1");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempt("listen on", here)?;
        let address = listener.local_addr().attempt("listen on", here)?;
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                thread::spawn(move || serve(client));
            }
        });
        Ok(Self { address, ends, thread: Some(thread) })
    }

    /// Returns the address of the server, which accepts any password.
    pub(super) fn address(&self) -> Address {
        Address::Tcp(self.address, "floor".to_owned())
    }
}

impl Drop for EchoServer {
    #[expect(clippy::let_underscore_must_use, reason = "a thread that has panicked has said so")]
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Serves a session. Each read is expected to return one complete message.
fn serve(mut client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let mut buffer = [0; 4096];
    let answers = [PASSWORD_REQUEST, STARTUP_RESPONSE].into_iter().chain(std::iter::repeat(READY));
    for answer in answers {
        if client.read(&mut buffer)? == 0 || buffer[0] == b'X' {
            return Ok(());
        }
        client.write_all(answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_answers_sessions_at_once_and_ends() {
        let server = EchoServer::open().unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| server.address().connect("any", &[]).unwrap()).collect();
        for client in &mut clients {
            assert!(client.query("SELECT 1").unwrap().is_empty());
        }
        for client in clients {
            client.close().unwrap();
        }
        let address = server.address;
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
