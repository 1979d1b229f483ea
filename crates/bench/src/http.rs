//! Implements a lightweight HTTP API client. It keeps its connection open, as the clients in most languages do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::client::RESPONSE_TIMEOUT;

/// An open connection to the HTTP API.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    secret: String,
}

impl HttpConnection {
    pub(crate) fn open(address: SocketAddr, secret: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream), address, secret: secret.to_owned() })
    }

    /// Sends a request such as `DELETE /v1/databases/a` and waits for the response.
    ///
    /// # Errors
    /// Also returns an error if the response's status isn't `expected`.
    pub(crate) fn request(&mut self, request: &str, body: &str, expected: &str) -> io::Result<()> {
        let Self { address, secret, .. } = self;
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(text.as_bytes())?;
        let status = self.read_response()?;
        if status.split(' ').nth(1) == Some(expected) {
            return Ok(());
        }
        Err(io::Error::other(format!("the response to {request} was \"{}\"", status.trim_end())))
    }

    /// Reads a complete response and returns its first line.
    fn read_response(&mut self) -> io::Result<String> {
        let (mut status, mut line, mut length) = (String::new(), String::new(), 0);
        self.stream.read_line(&mut status)?;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(status)
    }
}
