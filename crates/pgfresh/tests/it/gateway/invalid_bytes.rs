//! Tests that the gateway responds to invalid bytes and other protocols in the same way as the server behind it.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::start;
use crate::common::WAIT_TIMEOUT;
use crate::common::client::{message, packet, startup};
use crate::common::random::Random;
use crate::common::serve::Serve;

/// Connection that can send arbitrary bytes.
trait Connection: Read + Write {
    /// Closes the sending direction.
    fn finish(&self);
}

impl Connection for std::net::TcpStream {
    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Connection for std::os::unix::net::UnixStream {
    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

fn to_gateway(serve: &Serve) -> Box<dyn Connection> {
    let stream = std::net::TcpStream::connect(serve.address()).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    Box::new(stream)
}

fn to_server(serve: &Serve) -> Box<dyn Connection> {
    let run = std::path::Path::new(serve.ready["log"].as_str().unwrap()).parent().unwrap();
    let stream = std::os::unix::net::UnixStream::connect(run.join("socket/.s.PGSQL.5432")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    Box::new(stream)
}

/// Returns all bytes until the other end closes. The other end might reset the connection, because it
/// hasn't read everything.
fn rest(stream: &mut dyn Connection) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

/// Returns the messages, without positions in the server's source.
fn messages_of(mut bytes: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    while let Some((tag, after)) = bytes.split_first() {
        let length = after.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
        // Protocol 1 and 2 messages don't have a length, and their text follows the tag directly.
        let Some(body) = after.get(4..length) else {
            messages.push(bytes.escape_ascii().to_string());
            break;
        };
        let fields = body.split(|byte| *byte == 0).filter(|field| !field.is_empty());
        let fields = fields.filter(|field| !matches!(field[0], b'F' | b'L' | b'R') || *tag != b'E');
        let text: Vec<_> = fields.map(|field| field.escape_ascii().to_string()).collect();
        messages.push(format!("{} {}", char::from(*tag), text.join(" ")));
        bytes = &after[length..];
    }
    messages
}

/// Opens a session that is ready for queries. The gateway requests a password first.
fn begin(
    mut stream: Box<dyn Connection>,
    database: &str,
    options: &str,
    secret: &str,
) -> Box<dyn Connection> {
    stream.write_all(&startup(database, &[("options", options)])).unwrap();
    loop {
        match read(&mut *stream) {
            (b'R', body) if body == [0, 0, 0, 3] => {
                stream.write_all(&message(b'p', format!("{secret}\0").as_bytes())).unwrap();
            }
            (b'E', body) => panic!("{}", body.escape_ascii()),
            (b'Z', _) => return stream,
            _ => {}
        }
    }
}

/// Reads the next frame: tag and body.
fn read(stream: &mut dyn Connection) -> (u8, Vec<u8>) {
    let mut header = [0; 5];
    stream.read_exact(&mut header).unwrap();
    let length = u32::from_be_bytes(*header[1..].first_chunk().unwrap()) as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).unwrap();
    (header[0], body)
}

pub(crate) fn other_protocols_get_the_servers_error(major: u32) {
    let serve = start(major);
    let versions = [1 << 16, 4 << 16, (4 << 16) + 7, 5679 << 16, 0x7fff_ffff, 0xffff_ffff, (1234 << 16) + 5];
    for version in versions.into_iter().chain((major >= 14).then_some(2 << 16)) {
        let heard = [to_gateway(&serve), to_server(&serve)].map(|mut stream| {
            stream.write_all(&packet(version, b"user\0postgres\0\0")).unwrap();
            messages_of(&rest(&mut *stream))
        });
        assert_eq!(heard[0], heard[1], "{version:#x}");
    }
    // Version 13 still supports protocol 2. The gateway rejects it, in the format that its clients can parse.
    let mut old = to_gateway(&serve);
    old.write_all(&packet(2 << 16, &[0; 288])).unwrap();
    let words = rest(&mut *old);
    assert!(words.starts_with(b"EFATAL:  unsupported frontend protocol 2.0: "), "{words:?}");
}

pub(crate) fn sessions_see_local_clients_and_their_parameters(major: u32) {
    let serve = start(major);
    let mut session = serve.session_with("a", &[("application_name", "me")]).unwrap();
    for (sql, value) in [
        (
            "SELECT coalesce(inet_client_addr(), inet_server_addr()) IS NULL
               AND coalesce(inet_client_port(), inet_server_port()) IS NULL",
            "t",
        ),
        ("SHOW port", "5432"),
        ("SHOW listen_addresses", ""),
        (
            "SELECT concat_ws(' ', client_addr IS NULL, client_port, application_name)
               FROM pg_stat_activity WHERE pid = pg_backend_pid()",
            "t -1 me",
        ),
        ("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", "f"),
    ] {
        assert_eq!(session.value(sql).unwrap(), value, "{sql}");
    }
}

pub(crate) fn invalid_bytes_get_the_servers_answer(major: u32) {
    let serve = start(major);
    let mut random = Random::new();
    let seed = random.number();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let tags = b"QPBEDCSHFdcfpX!\0Zz~";
    for _ in 0..60 {
        let isolation = ["clone", "rollback"][random.below(2)];
        let mut bytes = if isolation == "clone" { message(b'Q', b"SELECT 1\0") } else { Vec::new() };
        // In rollback isolation, a client that closes before its response has arrived loses the response. So there,
        // the test only sends invalid lengths or unknown tags, because both end the session.
        let unknown = b"p!\0Zz~";
        let (tag, kind) = match isolation {
            "clone" => (tags[random.below(tags.len())], random.below(4)),
            _ if random.below(2) == 0 => (tags[random.below(tags.len())], 0),
            _ => (unknown[random.below(unknown.len())], random.below(4)),
        };
        // Terminate ends the session, whatever the message's length is. PostgreSQL 13 rejects the length first.
        if major < 14 && tag == b'X' && kind == 1 {
            continue;
        }
        match kind {
            // The length doesn't even include itself.
            0 => bytes.extend([tag, 0, 0, 0, u8::try_from(random.below(4)).unwrap()]),
            // The length is invalid for the server, or the server waits in vain for the rest.
            1 => bytes.extend([tag, u8::try_from(random.below(256)).unwrap(), 255, 0, 0, 1, 2]),
            // The body ends too early.
            2 => bytes.extend(&message(tag, &[b'x'; 9])[..5 + random.below(10)]),
            _ => bytes.extend(message(tag, &vec![u8::try_from(random.below(256)).unwrap(); random.below(9)])),
        }
        let secret = serve.secret();
        let heard = [(to_gateway(&serve), "a"), (to_server(&serve), "postgres")].map(|(stream, database)| {
            let mut stream = begin(
                stream,
                database,
                &format!("-c pgfresh.isolation={isolation} -c pgfresh.linger=0"),
                secret,
            );
            if isolation == "rollback" {
                stream.write_all(&message(b'Q', b"SELECT 2\0")).unwrap();
                while read(&mut *stream).0 != b'Z' {}
            }
            // The server might have closed its end before it has read everything.
            let _ = stream.write_all(&bytes);
            if isolation == "clone" {
                stream.finish();
            }
            messages_of(&rest(&mut *stream))
        });
        assert_eq!(heard[0], heard[1], "seed {seed}, {isolation}: {}", bytes.escape_ascii());
    }
}
