//! Implements TLS over a TCP connection with calls that never block.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::ServerConnection;
use sys::lock;

use crate::certificate::{CertificateChoice, POSTGRESQL, ServerCertificate};

#[cfg(test)]
mod tests;

/// A TLS connection. The handshake takes place while the gateway reads.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    session: Mutex<TlsSession>,
    choice: Arc<CertificateChoice>,
}

struct TlsSession {
    connection: ServerConnection,
    /// Number of bytes from the last write that were encrypted but not completely sent. The next write must begin with
    /// the same bytes.
    accepted: usize,
}

impl TlsSocket {
    /// Starts TLS on `stream`, which must be non-blocking. `read` contains handshake bytes that were read too early.
    pub(crate) fn accept(
        stream: TcpStream,
        certificate: &Arc<ServerCertificate>,
        mut read: &[u8],
    ) -> io::Result<Self> {
        let (mut connection, choice) = certificate.accept(stream.local_addr()?.ip())?;
        while !read.is_empty() {
            connection.read_tls(&mut read)?;
            process(&mut connection, &stream)?;
        }
        Ok(Self { stream, session: Mutex::new(TlsSession { connection, accepted: 0 }), choice })
    }

    /// Returns the TCP connection that carries TLS.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the certificate digest that a client can bind its proof to. Returns `None` if the handshake hasn't
    /// selected a certificate yet, or if the certificate has no digest.
    pub(crate) fn certificate_digest(&self) -> Option<&[u8]> {
        self.choice.digest()
    }

    /// Returns true if the client announced the `PostgreSQL` protocol in the handshake (ALPN).
    pub(crate) fn announced_postgresql(&self) -> bool {
        lock(&self.session).connection.alpn_protocol() == Some(POSTGRESQL)
    }

    /// Reads available bytes. Returns `WouldBlock` if there are none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let connection = &mut lock(&self.session).connection;
        loop {
            match connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The client closed the connection without close_notify. This is safe, since each PostgreSQL message
                // contains its length, so a truncated one would be noticed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            connection.read_tls(&mut &self.stream)?;
            process(connection, &self.stream)?;
        }
    }

    /// Writes as many bytes as there is room for. Returns `WouldBlock` if nothing fits. The caller must then retry with
    /// the same bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let TlsSession { connection, accepted } = &mut *lock(&self.session);
        flush(connection, &self.stream)?;
        if *accepted == 0 {
            *accepted = connection.writer().write(bytes)?;
            flush(connection, &self.stream)?;
        }
        // Retrying with different bytes would corrupt the caller's connection, but can't cause a panic here.
        Ok(std::mem::take(accepted).min(bytes.len()))
    }

    /// Sends `close_notify` and closes the writing side. Returns `WouldBlock` if there is no room.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.send_close_notify()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Moves decrypted bytes to `into`. This is necessary because the runtime only announces bytes in the socket, not
    /// those already decrypted.
    pub(crate) fn take_decrypted(&self, into: &mut Vec<u8>) {
        let mut chunk = [0; 1024];
        let connection = &mut lock(&self.session).connection;
        while let Ok(count @ 1..) = connection.reader().read(&mut chunk) {
            into.extend_from_slice(&chunk[..count]);
        }
    }

    fn send_close_notify(&self) -> io::Result<()> {
        let connection = &mut lock(&self.session).connection;
        connection.send_close_notify();
        flush(connection, &self.stream)
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        if let Err(error) = self.send_close_notify() {
            tracing::debug!(%error, "a client does not hear the end of TLS");
        }
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsSocket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Decrypts received records and sends TLS's own responses.
fn process(connection: &mut ServerConnection, stream: &TcpStream) -> io::Result<()> {
    let processed = connection.process_new_packets();
    // If the handshake fails, this also sends the alert with the reason.
    match flush(connection, stream) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends all encrypted bytes. Returns `WouldBlock` if there is no room.
fn flush(connection: &mut ServerConnection, mut stream: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(&mut stream)?;
    }
    Ok(())
}
