//! Implements the floor for every new database name: the minimum work that any gateway has to do.
//!
//! The floor exchanges the messages of a session's startup and first query, renames a database with one statement, and
//! forwards messages in a single thread. It doesn't check names, rights or settings, and uses the same server session
//! for all clients.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};

use pgwire::PASSWORD_REQUEST;
use server::{Rows, SessionError};
use storage::Attempt;

use crate::BenchError;
use crate::client::{Address, RESPONSE_TIMEOUT};
use crate::fixture::{Fixture, MANUAL_DATABASE};

pub(super) const STARTUP_RESPONSE: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
pub(super) const READY: &[u8] = b"Z\0\0\0\x05I";

/// A thread that stands in for the gateway. It stops when this value is dropped.
pub(super) struct MinimalGateway {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl MinimalGateway {
    pub(super) fn open(fixture: &Fixture) -> Result<Self, BenchError> {
        let mut admin = fixture.admin()?;
        let name = fixture.new_name();
        admin.query(&format!("CREATE DATABASE {name} TEMPLATE {MANUAL_DATABASE}"))?;
        let rows = admin.query(&format!("SELECT oid FROM pg_database WHERE datname = '{name}'"))?;
        let oid = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        admin.query(&format!(
            "PREPARE name(name) AS UPDATE pg_database SET datname = $1 WHERE oid = {oid}; \
             SET plan_cache_mode = force_generic_plan"
        ))?;
        let backend = fixture.server.session(&name)?.release()?;
        let here = Path::new("127.0.0.1");
        backend.set_read_timeout(Some(RESPONSE_TIMEOUT)).attempt("read from", here)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempt("listen on", here)?;
        let address = listener.local_addr().attempt("listen on", here)?;
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            let mut serial = 0;
            // The loop ends as soon as a client connects without sending anything.
            while let Ok((client, _)) = listener.accept() {
                serial += 1;
                let mut name = || admin.query(&format!("EXECUTE name('{name}_{serial}')"));
                if !serve(client, &backend, &mut name, &mut buffer).is_ok_and(|served| served) {
                    return;
                }
            }
        });
        Ok(Self { address, thread: Some(thread) })
    }

    /// Returns the thread's address. The password is arbitrary, because the thread accepts any password.
    pub(super) fn address(&self) -> Address {
        Address::Tcp(self.address, "floor".to_owned())
    }
}

impl Drop for MinimalGateway {
    #[expect(clippy::let_underscore_must_use, reason = "a thread that has panicked has said so")]
    fn drop(&mut self) {
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Serves a client session that sends one query. Returns false if the client sent nothing.
fn serve(
    mut client: TcpStream,
    mut backend: &UnixStream,
    name: &mut dyn FnMut() -> Result<Rows, SessionError>,
    buffer: &mut [u8],
) -> io::Result<bool> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    // This client sends each message in one piece.
    if client.read(buffer)? == 0 {
        return Ok(false);
    }
    client.write_all(PASSWORD_REQUEST)?;
    let _password = client.read(buffer)?;
    name().map_err(io::Error::other)?;
    client.write_all(STARTUP_RESPONSE)?;
    let count = client.read(buffer)?;
    backend.write_all(&buffer[..count])?;
    let mut end = 0;
    while !buffer[..end].ends_with(READY) {
        match backend.read(&mut buffer[end..])? {
            // Reading 0 bytes means that either the backend closed the connection or its response exceeds the buffer.
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => end += count,
        }
    }
    client.write_all(&buffer[..end])?;
    let _terminate = client.read(buffer)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_backend_ends_forwarded_session() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (backend, mut other) = UnixStream::pair().unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let served = thread::spawn(move || {
            let mut name = || Ok(Rows::default());
            serve(accepted, &backend, &mut name, &mut vec![0; 4096]).map_err(|error| error.kind())
        });
        let mut buffer = [0; 100];
        for message in ["start-up", "password"] {
            client.write_all(message.as_bytes()).unwrap();
            assert_ne!(client.read(&mut buffer).unwrap(), 0);
        }
        client.write_all(b"query").unwrap();
        assert_ne!(other.read(&mut buffer).unwrap(), 0);
        drop(other);
        assert_eq!(served.join().unwrap(), Err(io::ErrorKind::UnexpectedEof));
    }
}
