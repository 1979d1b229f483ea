use std::collections::VecDeque;

use pgwire::{HEADER, PASSWORD_REQUEST, frames};
use proptest::prelude::*;

use super::*;

/// A connection to a scripted server. The server sends `pieces` regardless of what it receives, and then stays silent.
#[derive(Debug, Default)]
struct Script {
    pieces: VecDeque<Vec<u8>>,
    heard: Vec<u8>,
}

impl Script {
    fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self { pieces: pieces.into_iter().map(<[u8]>::to_vec).collect(), heard: Vec::new() }
    }

    fn session(self) -> AdminConnection<Self> {
        AdminConnection::on(self)
    }
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.pieces.front_mut() else { return Err(io::ErrorKind::WouldBlock.into()) };
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        Ok(count)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const READY: &[u8] = b"Z\0\0\0\x05I";
const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0";

/// Returns a row with a single value.
fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    encode(b'D', &[b"\0\x01", &length[..], value].concat())
}

fn error(severity: &str) -> Vec<u8> {
    encode(b'E', format!("S{severity}\0V{severity}\0C23505\0Mno\0Dtwice\0\0").as_bytes())
}

fn rows(values: &[&str]) -> Rows {
    values.iter().map(|value| vec![Some((*value).to_owned())]).collect()
}

#[test]
fn response_parses_at_any_split() {
    let null = encode(b'D', b"\0\x01\xff\xff\xff\xff");
    let notice = encode(b'N', b"SNOTICE\0\0");
    let answer = [&row(b"a")[..], &notice, &row(b"Z\0\0\0\x05I"), &null, READY].concat();
    let mut expected = rows(&["a", "Z\0\0\0\u{5}I"]);
    expected.push(vec![None]);
    for at in 1..answer.len() {
        let (first, second) = answer.split_at(at);
        let mut session = Script::of([first, second]).session();
        assert_eq!(session.query("SELECT").unwrap(), expected, "cut at byte {at}");
        assert_eq!(session.stream.heard, query(b"SELECT"));
        assert!(session.unread.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_of_any_size_are_read(
        lengths in prop::collection::vec(prop_oneof![0_usize..40, 8_000_usize..8_400, 65_000_usize..66_000, Just(200_000_usize)], 1..12),
        piece in prop_oneof![100_usize..900, 8_000_usize..8_400, 60_000_usize..70_000],
    ) {
        let letters: String = ('a'..='z').collect();
        let values: Vec<String> =
            lengths.iter().enumerate().map(|(at, length)| letters.repeat(length / 26 + 2)[at..at + length].to_owned()).collect();
        let answer: Vec<u8> = values.iter().flat_map(|value| row(value.as_bytes())).chain(READY.to_vec()).collect();
        let mut session = Script::of(answer.chunks(piece)).session();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        prop_assert!(session.query("SELECT").unwrap() == rows(&values));
        prop_assert!(session.buffer.len() <= LARGE_CHUNK.max(lengths.iter().max().unwrap() + HEADER + 6));
        session.shrink();
        prop_assert_eq!(session.buffer.capacity(), 0);
    }
}

#[test]
fn sessions_start_with_cleartext_passwords_only() {
    let params = StartupParams::new([("user", "me"), ("application_name", "x")]);
    let start = |server: &[&[u8]], password| {
        AdminConnection::start(Script::of(server.iter().copied()), &params, "db", password)
    };
    let startup = b"\0\0\0\x30\0\x03\0\0user\0me\0application_name\0x\0database\0db\0\0";
    let trusting = start(&[AUTHENTICATED, READY], Some("secret")).unwrap();
    assert_eq!(trusting.stream.heard, startup);
    let asking = start(&[PASSWORD_REQUEST, AUTHENTICATED, READY], Some("secret")).unwrap();
    assert_eq!(asking.stream.heard, [&startup[..], b"p\0\0\0\x0bsecret\0"].concat());
    let md5 = encode(b'R', b"\0\0\0\x05salt");
    for (server, password) in [(PASSWORD_REQUEST, None), (&md5, Some("secret"))] {
        let error = start(&[server], password).unwrap_err();
        assert!(matches!(error, SessionError::Io { verb: "log in", .. }), "{error:?}");
    }
    let refused = start(&[&error("FATAL")], None).unwrap_err();
    assert!(matches!(refused, SessionError::Server { .. }) && refused.is_fatal(), "{refused:?}");
}

#[test]
fn fatal_errors_end_the_session() {
    let mut session =
        Script::of([&row(b"1")[..], &error("ERROR"), READY, &row(b"2"), READY, &error("FATAL")]).session();
    let error = session.query("SELECT").unwrap_err();
    assert!(!error.is_fatal());
    assert_eq!(error.detail().as_deref(), Some("twice"));
    assert_eq!(session.query("SELECT").unwrap(), rows(&["2"]));
    assert!(session.query("SELECT").unwrap_err().is_fatal());
    let late = session.query("SELECT").unwrap_err();
    assert!(
        matches!(&late, SessionError::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut),
        "{late:?}"
    );
}

#[test]
fn queries_sent_together_report_the_first_error() {
    let queries = ["DELETE", "VACUUM", "SELECT"].map(str::to_owned);
    let answers = |second: &[u8]| [&row(b"1"), READY, second, READY, &row(b"3"), READY].concat();
    let mut session = Script::of([&answers(&row(b"2"))[..]]).session();
    assert_eq!(session.query_all(&queries).unwrap(), rows(&["3"]));
    assert_eq!(session.stream.heard, queries.clone().map(|sql| query(sql.as_bytes())).concat());
    let mut session = Script::of([&answers(&error("ERROR"))[..], &row(b"4"), READY]).session();
    assert!(!session.query_all(&queries).unwrap_err().is_fatal());
    assert_eq!(session.query("SELECT").unwrap(), rows(&["4"]), "all answers have been read");
    let large = ["DELETE".repeat(TOGETHER), "SELECT".to_owned()];
    let mut session = Script::of([&row(b"1"), READY, &row(b"2"), READY]).session();
    assert_eq!(session.query_all(&large).unwrap(), rows(&["2"]));
    let mut session = Script::of([&error("FATAL")[..]]).session();
    assert!(session.query_all(&queries).unwrap_err().is_fatal());
}

#[test]
fn copies_end_with_copy_done() {
    let out =
        [encode(b'H', b"\0\0\0"), encode(b'd', b"1\n"), encode(b'd', b""), encode(b'd', b"2\n")].concat();
    let mut session = Script::of([&out[..], &encode(b'c', b""), READY, READY]).session();
    let mut copied = Vec::new();
    session.copy_out("COPY t TO STDOUT", &mut |row| copied.push(row.to_vec())).unwrap();
    assert_eq!(copied, [&b"1\n"[..], b"", b"2\n"]);
    session.stream.heard.clear();
    let message = encode(b'd', b"1\n");
    session.copy_in("COPY t FROM STDIN", [&message[..], &message]).unwrap();
    let tags: Vec<u8> = frames(&session.stream.heard).map(|frame| frame.tag).collect();
    assert_eq!(tags, *b"Qddc");
    session.stream.heard.clear();
    session.stream.pieces.push_back([&error("ERROR")[..], READY].concat());
    assert!(session.copy_in("COPY t FROM STDIN", [&message[..]]).is_err());
}

#[test]
fn nonsense_from_a_server_is_an_error() {
    let mut session = Script::of([&b"D\0\0\0\x03"[..]]).session();
    let error = session.query("SELECT").unwrap_err();
    assert!(matches!(error, SessionError::Io { verb: "parse the server's response", .. }), "{error:?}");
}

#[test]
fn unread_requests_time_out() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut session = AdminConnection::adopt(ours, Duration::from_millis(50)).unwrap();
    let late = session.query(&"x".repeat(16 << 20)).unwrap_err();
    assert!(
        matches!(&late, SessionError::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut),
        "{late:?}"
    );
}

#[test]
fn closed_session_returns_last_error() {
    for (words, expected) in [
        (
            ErrorResponse::fatal("57P01", "terminating connection").to_bytes(),
            "FATAL 57P01: terminating connection",
        ),
        (Vec::new(), "could not write to the server"),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut session = AdminConnection::adopt(ours, Duration::from_mins(1)).unwrap();
        theirs.write_all(&words).unwrap();
        drop(theirs);
        let error = session.query("SELECT 1").unwrap_err();
        assert!(error.is_fatal());
        assert_eq!(error.to_string(), expected);
    }
}
