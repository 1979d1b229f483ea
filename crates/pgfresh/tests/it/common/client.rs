//! Client that lets a test send exact bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use pgwire::ErrorResponse;
/// Encodes a message with a tag.
pub(crate) use pgwire::encode as message;

use super::WAIT_TIMEOUT;

/// Message from the server: tag and body.
pub(crate) type Message = (u8, Vec<u8>);

/// Open session, or a connection that is becoming one.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Process ID and secret for a CancelRequest.
    pub(crate) key: Vec<u8>,
    /// Bodies of the first ParameterStatus messages that the server sent.
    pub(crate) reported: Vec<Vec<u8>>,
}

/// An error's SQLSTATE and message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) sqlstate: String,
    pub(crate) message: String,
}

/// Encodes a simple query.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    pgwire::query(sql.as_bytes())
}

/// Encodes a packet without a tag.
pub(crate) fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [&length.to_be_bytes(), &code.to_be_bytes(), body].concat()
}

/// Encodes the startup message for a session with `database` and further parameters.
pub(crate) fn startup(database: &str, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = format!("user\0postgres\0database\0{database}\0");
    for (name, value) in parameters {
        body.extend([*name, "\0", *value, "\0"]);
    }
    body.push('\0');
    packet(0x0003_0000, body.as_bytes())
}

impl Client {
    /// Opens a connection without sending anything.
    pub(crate) fn knock(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, key: Vec::new(), reported: Vec::new() }
    }

    /// Opens a session that is ready for queries, or returns the error that ended it.
    pub(crate) fn open(address: &str, password: &str, startup: &[u8]) -> Result<Self, Failure> {
        let mut client = Self::enter(address, password, startup)?;
        client.read_startup_response().map(|()| client)
    }

    /// Opens a connection and sends the password, or returns the error that ended the connection.
    pub(crate) fn enter(address: &str, password: &str, startup: &[u8]) -> Result<Self, Failure> {
        let mut client = Self::knock(address);
        client.send(startup);
        let said = client.read();
        if said.0 == b'E' {
            return Err(failure(&said));
        }
        assert_eq!(said, (b'R', vec![0, 0, 0, 3]), "a request for a password");
        client.send(&message(b'p', format!("{password}\0").as_bytes()));
        Ok(client)
    }

    /// Reads the startup response until the server is ready for the first query.
    pub(crate) fn read_startup_response(&mut self) -> Result<(), Failure> {
        for message in self.until_ready() {
            match message.0 {
                b'K' => self.key = message.1,
                b'S' => self.reported.push(message.1),
                b'E' => return Err(failure(&message)),
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads the next message. At the end of the connection, the tag is 0.
    pub(crate) fn read(&mut self) -> Message {
        let mut header = [0; 5];
        if let Err(error) = self.stream.read_exact(&mut header) {
            let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "{error}");
            return (0, Vec::new());
        }
        let [tag, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.stream.read_exact(&mut body).unwrap();
        (tag, body)
    }

    /// Reads all messages up to a ReadyForQuery, or up to an error that ends the session.
    pub(crate) fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.read();
            let last = matches!(message.0, b'Z' | 0);
            messages.push(message);
            if last {
                return messages;
            }
        }
    }

    /// Sends a query, and returns all messages of the response.
    pub(crate) fn ask(&mut self, sql: &str) -> Vec<Message> {
        self.send(&query(sql));
        self.until_ready()
    }

    /// Returns the only value of a query's result, or the error.
    pub(crate) fn value(&mut self, sql: &str) -> Result<String, Failure> {
        let messages = self.ask(sql);
        if let Some(error) = messages.iter().find(|message| message.0 == b'E') {
            return Err(failure(error));
        }
        let row = messages.iter().find(|message| message.0 == b'D');
        Ok(row.map(|(_, row)| String::from_utf8_lossy(&row[6..]).into_owned()).unwrap_or_default())
    }

    /// Ends the session as a driver does, and waits until the gateway closes the connection.
    pub(crate) fn close(mut self) {
        self.send(&message(b'X', b""));
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
    }
}

/// Returns the SQLSTATE and message from an ErrorResponse.
pub(crate) fn failure(message: &Message) -> Failure {
    assert_eq!(message.0, b'E', "{message:?}");
    let error = ErrorResponse::read(&message.1);
    Failure { sqlstate: error.sqlstate.into_owned(), message: error.message.into_owned() }
}
