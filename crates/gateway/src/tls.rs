//! A TCP connection with TLS on it, read and written without waiting like any other socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::ServerConnection;
use sys::lock;

use crate::certificate::{Choice, POSTGRESQL, ServerCertificate};

#[cfg(test)]
mod tests;

/// One connection; its handshake goes on as it is read from.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    session: Mutex<TlsSession>,
    choice: Arc<Choice>,
}

struct TlsSession {
    connection: ServerConnection,
    /// Bytes of the last write that are encrypted, but not all of them sent: who tries again begins with the same ones.
    accepted: usize,
}

impl TlsSocket {
    /// Begins a session on `stream`, which never blocks. `read` are the first bytes of its handshake, read too early.
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

    /// The TCP connection itself.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The digest of the certificate that a client may bind its proof to, once the handshake is done.
    pub(crate) fn certificate_digest(&self) -> Option<&[u8]> {
        self.choice.digest()
    }

    /// Whether the client has said in the handshake that it is going to speak `PostgreSQL`.
    pub(crate) fn speaks_postgresql(&self) -> bool {
        lock(&self.session).connection.alpn_protocol() == Some(POSTGRESQL)
    }

    /// Reads what is there; `WouldBlock` if that is nothing.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let connection = &mut lock(&self.session).connection;
        loop {
            match connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Without a farewell. What it said is complete or not by PostgreSQL's own lengths.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            connection.read_tls(&mut &self.stream)?;
            process(connection, &self.stream)?;
        }
    }

    /// Writes what there is room for; `WouldBlock` if that is nothing. Who tries again begins with the same bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let TlsSession { connection, accepted } = &mut *lock(&self.session);
        flush(connection, &self.stream)?;
        if *accepted == 0 {
            *accepted = connection.writer().write(bytes)?;
            flush(connection, &self.stream)?;
        }
        // A caller that breaks the promise has a broken connection, but no more than that.
        Ok(std::mem::take(accepted).min(bytes.len()))
    }

    /// Tells the other end that nothing more will come; `WouldBlock` if there is no room for that.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.say_farewell()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// What is decrypted already: no socket is going to tell of it again.
    pub(crate) fn take_decrypted(&self, into: &mut Vec<u8>) {
        let mut chunk = [0; 1024];
        let connection = &mut lock(&self.session).connection;
        while let Ok(count @ 1..) = connection.reader().read(&mut chunk) {
            into.extend_from_slice(&chunk[..count]);
        }
    }

    fn say_farewell(&self) -> io::Result<()> {
        let connection = &mut lock(&self.session).connection;
        connection.send_close_notify();
        flush(connection, &self.stream)
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        if let Err(error) = self.say_farewell() {
            tracing::debug!(%error, "a client does not hear the end of TLS");
        }
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsSocket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Decrypts what was read, and answers where TLS itself wants an answer.
fn process(connection: &mut ServerConnection, stream: &TcpStream) -> io::Result<()> {
    let processed = connection.process_new_packets();
    // An alert says why it fails, too.
    match flush(connection, stream) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends all that is encrypted; `WouldBlock` if there is no room for it.
fn flush(connection: &mut ServerConnection, mut stream: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(&mut stream)?;
    }
    Ok(())
}
