//! Offers TLS to programs that connect directly to the server rather than through the gateway.
//!
//! For example, a template's setup command might insist on TLS. The server itself doesn't offer TLS, so pgfresh does.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pgwire::{NOT_ENCRYPTED, StartupPacket};
use server::LoopbackEncryption;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::runtime::Builder;

use crate::ServerCertificate;
use crate::handshake::{TLS_HANDSHAKE, encrypt};
use crate::stream::{Socket, Stream};

/// Offers TLS with the gateway's certificate and forwards the decrypted bytes to the server.
#[derive(Debug)]
pub struct SetupEncryption(pub Arc<ServerCertificate>);

impl LoopbackEncryption for SetupEncryption {
    fn root(&self) -> Option<String> {
        self.0.root()
    }

    fn forward(&self, client: TcpStream, server: UnixStream) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let client = Stream::new(Socket::tcp(client)?, Vec::new())?;
            let mut server = Stream::new(Socket::unix(server)?, Vec::new())?;
            let mut client = self.begin(client).await?;
            copy_bidirectional(&mut client, &mut server).await.map(drop)
        })
    }
}

impl SetupEncryption {
    /// Responds to encryption requests until the client sends its first message to the server itself.
    async fn begin(&self, mut client: Stream) -> io::Result<Stream> {
        let mut bytes = Vec::new();
        loop {
            if client.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if bytes[0] == TLS_HANDSHAKE && !client.is_encrypted() {
                client = client.encrypted(&self.0, &bytes)?;
                bytes.clear();
                continue;
            }
            match StartupPacket::read(&bytes) {
                Ok(None) => {}
                Ok(Some((StartupPacket::SslRequest, length))) => {
                    let goes_on = bytes.len() > length;
                    let encrypted = encrypt(client, Some(&self.0), goes_on).await;
                    client = encrypted.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                    bytes.clear();
                }
                Ok(Some((StartupPacket::GssRequest, length))) => {
                    client.write_all(NOT_ENCRYPTED).await?;
                    bytes.drain(..length);
                }
                // Let the server respond: if something is wrong, it reports the error.
                Ok(Some(_)) | Err(_) => return Ok(client.with_unread(bytes)),
            }
        }
    }
}
