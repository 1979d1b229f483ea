//! Proxy that damages a store's responses, as networks and servers do.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Damage that the proxy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// No process listens on the port.
    Refused,
    /// Every response has this status.
    Status(u16),
    /// The proxy reads a request and never responds.
    Silent,
    /// Each response redirects to the proxy itself.
    RedirectLoop,
    /// A response never ends.
    Endless,
    /// Each connection ends after this many response bytes.
    CutEach(u64),
    /// Once all connections together have this many response bytes, the connection with the last of these bytes ends.
    /// No other connection ends.
    CutOnce(u64),
    /// From this byte on, the proxy sends one byte per second.
    Drip(u64),
    /// From this byte on, the proxy doesn't send anything.
    Freeze(u64),
    /// One bit in this byte is wrong.
    Flip(u64),
}

struct Shared {
    to: u16,
    fault: Mutex<Fault>,
    connections: AtomicUsize,
    /// Number of response bytes on all connections.
    sent: AtomicU64,
    over: AtomicBool,
}

/// Proxy that is running on a free port.
pub(super) struct Proxy {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // This connection wakes the accepting thread.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

impl Proxy {
    /// Starts a proxy for the server on port `to`.
    pub(super) fn start(to: u16, fault: Fault) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to,
            fault: Mutex::new(fault),
            connections: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            over: AtomicBool::new(fault == Fault::Refused),
        });
        if fault != Fault::Refused {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    if shared.over.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || drop(shared.serve(client)));
                }
            });
        }
        Self { port, shared }
    }

    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of response bytes so far.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap()
    }

    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        match self.fault() {
            Fault::Status(status) => {
                self.answer(&mut client, &format!("HTTP/1.1 {status} Because\r\nContent-Length: 0\r\n\r\n"))
            }
            Fault::RedirectLoop => {
                let location = format!("http://{}/again", client.local_addr()?);
                let answer =
                    format!("HTTP/1.1 307 Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
                self.answer(&mut client, &answer)
            }
            Fault::Endless => {
                read_request(&mut client)?;
                client.write_all(b"HTTP/1.1 200 OK\r\nLast-Modified: Mon, 02 Nov 2026 00:00:00 GMT\r\nETag: \"x\"\r\nContent-Length: 99999999999\r\n\r\n")?;
                while !self.over.load(Ordering::SeqCst) {
                    client.write_all(&[b'x'; 4096])?;
                }
                Ok(())
            }
            Fault::Silent => {
                let mut gone = [0; 4096];
                while client.read(&mut gone)? > 0 {}
                Ok(())
            }
            _ => self.forward(&client),
        }
    }

    /// Sends the same response to every request on a connection.
    fn answer(&self, client: &mut TcpStream, answer: &str) -> std::io::Result<()> {
        while read_request(client)? && !self.over.load(Ordering::SeqCst) {
            client.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    fn forward(&self, client: &TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to))?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            drop(std::io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
        let result = self.answers(&server, client);
        drop(client.shutdown(Shutdown::Both));
        drop(server.shutdown(Shutdown::Both));
        result
    }

    /// Forwards the server's responses, with the fault.
    fn answers(&self, mut server: &TcpStream, mut client: &TcpStream) -> std::io::Result<()> {
        let (mut buffer, mut of_this) = (vec![0; 16 * 1024], 0);
        loop {
            let count = server.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let piece = &mut buffer[..count];
            let before = self.sent.fetch_add(count as u64, Ordering::SeqCst);
            let within = |at: u64| usize::try_from(at.saturating_sub(before)).unwrap().min(count);
            match self.fault() {
                Fault::CutEach(after) if of_this + count as u64 > after => {
                    client.write_all(&piece[..usize::try_from(after - of_this).unwrap()])?;
                    return Ok(());
                }
                Fault::CutOnce(at) if (before..before + count as u64).contains(&at) => {
                    client.write_all(&piece[..within(at)])?;
                    return Ok(());
                }
                Fault::Flip(at) if (before..before + count as u64).contains(&at) => {
                    piece[within(at)] ^= 1;
                    client.write_all(piece)?;
                }
                Fault::Drip(at) | Fault::Freeze(at) if before + count as u64 > at => {
                    client.write_all(&piece[..within(at)])?;
                    for byte in &piece[within(at)..] {
                        thread::sleep(Duration::from_secs(1));
                        if self.over.load(Ordering::SeqCst) {
                            return Ok(());
                        }
                        if matches!(self.fault(), Fault::Drip(_)) {
                            client.write_all(&[*byte])?;
                        }
                    }
                }
                _ => client.write_all(piece)?,
            }
            of_this += count as u64;
        }
    }
}

/// Reads up to the end of a request's head. Returns false at the end of the connection.
fn read_request(client: &mut TcpStream) -> std::io::Result<bool> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte)? == 0 {
            return Ok(false);
        }
        head.push(byte[0]);
    }
    Ok(true)
}
