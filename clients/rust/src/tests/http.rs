//! Fake HTTP server whose responses come from a test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    /// Null if the request has no body.
    pub(super) body: Value,
}

/// Starts a server and returns its port. `answer` returns the status and the body of each response, or None to close
/// the connection.
pub(super) fn serve(answer: impl Fn(Request) -> Option<(u64, Option<Value>)> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if let Some((status, body)) = answer(read(&stream)) {
                let body = body.map(|body| body.to_string()).unwrap_or_default();
                let length = body.len();
                let location = if (300..400).contains(&status) { "Location: /elsewhere\r\n" } else { "" };
                write!(
                    stream,
                    "HTTP/1.1 {status} So\r\n{location}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                )
                .unwrap();
            }
        }
    });
    port
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let (mut length, mut authorization) = (0, None);
    loop {
        let header = line();
        let Some((name, value)) = header.split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Request { method, path, authorization, body }
}
