//! Lets clients cancel their statements through the gateway.
//!
//! A cancel key consists of a process id and a secret. The client receives the real process id of its backend, but the
//! secret comes from the gateway. When the client cancels a statement, the gateway sends the backend's real key to the
//! server.
//!
//! The gateway's secret becomes invalid when the session ends, so the old key can't interrupt the next client of the
//! same backend.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sys::lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::rollback::Gate;
use crate::stream::{Socket, Stream};

/// Timeout for the server to process a cancel request.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of the process id at the start of a key, in bytes. The rest of the key is the secret.
const PROCESS_ID_SIZE: usize = 4;

/// All cancel keys in use.
#[derive(Debug, Default)]
pub(crate) struct CancelKeys(Mutex<HashMap<Box<[u8]>, CancelTarget>>);

#[derive(Debug)]
struct CancelTarget {
    server: SocketAddr,
    key: Box<[u8]>,
    used: bool,
    /// Delays cancel requests while the server runs a statement injected by the gateway. `None` if the gateway doesn't
    /// inject statements.
    gate: Option<Arc<Gate>>,
}

/// Cancel key of one session, valid until dropped or withdrawn.
#[derive(Debug)]
pub(crate) struct CancelKey {
    keys: Arc<CancelKeys>,
    ours: Box<[u8]>,
}

impl CancelKeys {
    /// Replaces the backend's secret in `startup_response` with a new random secret. From now on, a cancel request with
    /// the new secret interrupts the backend at the other end of `server`. Returns `None` if `startup_response`
    /// contains no key. If there is a gate, cancel requests wait until the gate is open.
    pub(crate) fn issue(
        self: &Arc<Self>,
        startup_response: &mut [u8],
        server: &UnixStream,
        gate: Option<Arc<Gate>>,
    ) -> io::Result<Option<CancelKey>> {
        let Some(place) = pgwire::cancel_key(startup_response) else { return Ok(None) };
        let target = CancelTarget {
            server: server.peer_addr()?,
            key: startup_response[place.clone()].into(),
            used: false,
            gate,
        };
        sys::fill_random(&mut startup_response[place.start + PROCESS_ID_SIZE..place.end])?;
        let ours: Box<[u8]> = startup_response[place].into();
        lock(&self.0).insert(ours.clone(), target);
        Ok(Some(CancelKey { keys: Arc::clone(self), ours }))
    }

    /// Interrupts the session with the key `ours`. Returns once the server has processed the request. Ignores unknown
    /// keys, as a PostgreSQL server does.
    pub(crate) async fn cancel(&self, ours: &[u8]) -> io::Result<()> {
        let gate = {
            let mut keys = lock(&self.0);
            let Some(target) = keys.get_mut(ours) else { return Ok(()) };
            target.used = true;
            target.gate.clone()
        };
        match &gate {
            None => self.send(ours).await,
            Some(gate) => match gate.wait_for_client_turn().await {
                Some(_held) => self.send(ours).await,
                None => Ok(()),
            },
        }
    }

    async fn send(&self, ours: &[u8]) -> io::Result<()> {
        let (server, request) = {
            let keys = lock(&self.0);
            let Some(target) = keys.get(ours) else { return Ok(()) };
            (target.server.clone(), pgwire::cancel_request(&target.key))
        };
        // Connecting to a unix socket returns immediately unless the server is overloaded.
        let server = UnixStream::connect_addr(&server)?;
        let mut server = Stream::new(Socket::unix(server)?, Vec::new())?;
        server.write_all(&request).await?;
        // The server signals the backend and then closes this connection.
        let closed = timeout(CANCEL_TIMEOUT, server.read(&mut [0])).await;
        closed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(drop)
    }
}

impl CancelKey {
    /// Returns the process id of the backend.
    pub(crate) fn process(&self) -> i32 {
        self.ours.first_chunk().copied().map_or(0, i32::from_be_bytes)
    }

    /// Interrupts the session even if its gate is closed.
    pub(crate) async fn interrupt(&self) -> io::Result<()> {
        self.keys.send(&self.ours).await
    }

    /// Makes the key invalid. Returns true if a client has used the key, because a signal to the backend might then
    /// still be in transit.
    pub(crate) fn withdraw(self) -> bool {
        lock(&self.keys.0).remove(&self.ours).is_some_and(|target| target.used)
    }
}

impl Drop for CancelKey {
    fn drop(&mut self) {
        lock(&self.keys.0).remove(&self.ours);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    const STARTUP_RESPONSE: &[u8] = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x07abcdZ\0\0\0\x05I";

    fn issued(keys: &Arc<CancelKeys>, server: &UnixStream) -> (CancelKey, Vec<u8>) {
        let mut startup_response = STARTUP_RESPONSE.to_vec();
        let key = keys.issue(&mut startup_response, server, None).unwrap().unwrap();
        assert_eq!(
            (&startup_response[..18], &startup_response[22..]),
            (&STARTUP_RESPONSE[..18], &STARTUP_RESPONSE[22..])
        );
        (key, startup_response[14..22].to_vec())
    }

    #[tokio::test]
    async fn only_valid_cancel_key_reaches_its_backend() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = UnixStream::connect(&path).unwrap();
        let held = listener.accept().unwrap();
        let keys = Arc::new(CancelKeys::default());
        let (key, bytes) = issued(&keys, &server);
        assert_ne!(&bytes[4..], b"abcd");
        let postmaster = std::thread::spawn(move || {
            let mut request = Vec::new();
            listener.accept().unwrap().0.take(16).read_to_end(&mut request).unwrap();
            (listener, request)
        });
        keys.cancel(&bytes).await.unwrap();
        let (listener, request) = postmaster.join().unwrap();
        assert_eq!(request, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd");
        assert!(key.withdraw());
        keys.cancel(&bytes).await.unwrap();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
        let (key, bytes) = issued(&keys, &server);
        assert!(!key.withdraw());
        keys.cancel(&bytes).await.unwrap();
        drop(held);
    }
}
