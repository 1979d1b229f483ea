//! Sets up a session between a client and a stub server, and a conversation that contains every kind of message.

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use pgwire::{Frame, StartupParams, encode, query};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::task::yield_now;

use super::*;
use crate::history::StatementHistory;
use crate::rollback::stub::{
    Cuts, StubServer, bind, execute, parse, serve, serve_in_pieces, sync, write_pieces,
};
use crate::statement_tap::{SessionListeners, Taps};
use crate::stream::Socket;
use crate::testing::pair;

const STARTUP_RESPONSE: &[u8] = b"server_version\x0015.4\0standard_conforming_strings\0on\0";

/// Patience for a statement without a client, longer than any test takes.
pub(super) const PATIENT: Duration = Duration::from_hours(1);

/// A session whose client and server ends are controlled by the test.
pub(super) struct Fixture {
    pub(super) drive: Drive,
    pub(super) client: Stream,
    pub(super) server: Stream,
    /// Duplicates of the session's own sockets.
    pub(super) near: UnixStream,
    pub(super) far: UnixStream,
    pub(super) taps: Taps,
    pub(super) begun: Instant,
}

/// How the bytes from each side are cut into pieces.
pub(super) struct Pieces<'a> {
    pub(super) up: &'a Cuts,
    pub(super) down: &'a Cuts,
    /// Whether the client waits for a response to each piece.
    pub(super) patient: bool,
}

/// Result of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// All bytes received by the client.
    pub(super) received: Vec<u8>,
    /// All statements run by the server.
    pub(super) ran: Vec<String>,
}

pub(super) fn duplicate(stream: &Stream) -> UnixStream {
    let Socket::Unix(stream) = stream.socket() else { panic!("not a unix socket") };
    stream.try_clone().unwrap()
}

pub(super) fn new_session() -> RollbackSession {
    RollbackSession::new(LeaseTransaction::default(), STARTUP_RESPONSE)
}

impl Fixture {
    pub(super) fn new(room: Option<usize>) -> Self {
        let taps = Taps { history: Some(Arc::new(StatementHistory::default())), ..Taps::default() };
        let ((client, near), (far, server)) = (pair(room), pair(room));
        let ends = (duplicate(&near), duplicate(&far));
        let begun = Instant::now();
        let transcription = Some((taps.transcribe(), StartupParams::new([])));
        let listeners = SessionListeners { transcription, ..SessionListeners::default() };
        let tap = taps.tap("d", None, begun, listeners);
        let drive = Drive::new(near, far, new_session(), Arc::new(Gate::new()), tap);
        Self { drive, client, server, near: ends.0, far: ends.1, taps, begun }
    }

    /// Sends all of `sent` and returns once the outcome is as long as `expected`.
    pub(super) async fn play(
        &mut self,
        sent: &[u8],
        Pieces { up, down, patient }: Pieces<'_>,
        expected: &Outcome,
    ) -> Outcome {
        let Self { drive, client, server, near, far, .. } = self;
        let stub = RefCell::new(StubServer::new());
        let (mut up, mut down) = (up.pieces(), down.pieces());
        let (mut from_client, mut to_client) = split(client);
        let talks = async {
            let mut rest = sent;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(up.next().unwrap().min(rest.len()));
                write_pieces(&mut to_client, piece, &mut std::iter::once(usize::MAX), near).await;
                rest = after;
                if patient {
                    wait_until_quiet(near, far).await;
                }
            }
        };
        let listens = async {
            let mut received = vec![0; expected.received.len()];
            from_client.read_exact(&mut received).await.unwrap();
            // The server may still be running statements that the client doesn't wait for.
            while stub.borrow().ran.len() < expected.ran.len() {
                yield_now().await;
            }
            wait_until_quiet(near, far).await;
            received
        };
        let serves = serve_in_pieces(server, &stub, &mut down, far);
        let received = tokio::select! {
            biased;
            end = drive.run() => panic!("ended: {end:?}"),
            () = serves => panic!("the gateway has closed the server's connection"),
            ((), received) = async { tokio::join!(talks, listens) } => received,
        };
        Outcome { received, ran: stub.into_inner().ran }
    }

    /// Returns the statements that the listeners received, and the requests in the transcript.
    pub(super) fn observed(&self) -> Vec<String> {
        let ran = self.taps.history.as_ref().unwrap().of("d", self.begun);
        let ran = ran.into_iter().map(|ran| format!("{} {}", ran.statement, ran.error.is_some()));
        let transcripts = self.taps.transcribe().finish().into_iter();
        let requests = transcripts.flat_map(|transcript| transcript.requests);
        ran.chain(requests.map(|request| request.messages.escape_ascii().to_string())).collect()
    }
}

/// Returns the outcome without using connections, so that each message is complete and gets its response immediately.
pub(super) fn run_without_sockets(sent: &[u8]) -> Outcome {
    let (mut session, mut stub, mut received) = (new_session(), StubServer::new(), Vec::new());
    let mut answer = |session: &mut RollbackSession, stub: &mut StubServer| {
        loop {
            received.append(&mut session.to_client);
            let to_server = std::mem::take(&mut session.to_server);
            if to_server.is_empty() {
                return;
            }
            for answer in frames(&to_server).flat_map(|frame| stub.receive(frame.tag, frame.body)) {
                match session.server_head(answer[0]) {
                    Disposition::Whole => session.server_message(&answer),
                    Disposition::Pass => session.to_client.extend_from_slice(&answer),
                    Disposition::Drop => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    for Frame { tag, body } in frames(sent) {
        let message = encode(tag, body);
        let disposition = session.client_head(tag);
        match disposition {
            Disposition::Whole => session.client_message(tag, body),
            Disposition::Names => session.client_bind(body),
            Disposition::Pass | Disposition::Drop => {}
            Disposition::Wait => panic!("all was answered before {:?}", char::from(tag)),
        }
        if matches!(disposition, Disposition::Names | Disposition::Pass) {
            session.to_server.extend_from_slice(&message);
        }
        answer(&mut session, &mut stub);
    }
    assert_eq!(session.broken, None);
    Outcome { received, ran: stub.ran }
}

/// Returns a conversation containing every kind of message.
pub(super) fn conversation() -> Vec<u8> {
    let extended = [parse("", "ROWS 2 9"), bind("", "", 6), encode(b'D', b"P\0"), execute(""), sync()];
    let named = [parse("long name", "BEGIN"), bind("portal", "long name", 0), execute("portal"), sync()];
    let failed = [parse("", "fail"), bind("", "", 0), execute(""), bind("", "", 40), execute(""), sync()];
    [
        query(b"ROWS 1 30"),
        query(b"fail"),
        query(b"BEGIN"),
        query(b"INSERT"),
        query(b"SAVEPOINT a"),
        query(b"COMMIT"),
        extended.concat(),
        query(b"INSERT; COMMIT; DELETE"),
        query(b"COPY t FROM STDIN"),
        encode(b'd', b"1\tQ\0\0\0\x08X\0\0\0\x04\n"),
        encode(b'c', b""),
        named.concat(),
        failed.concat(),
        query(b"ROLLBACK"),
        query(b"COPY t FROM STDIN"),
        encode(b'd', b"2"),
        encode(b'f', b"no\0"),
        query(b"COPY broken FROM STDIN"),
        encode(b'd', b"3"),
        encode(b'd', &[b'x'; 40]),
        encode(b'c', b""),
        query(b"ROWS 1 1"),
    ]
    .concat()
}

/// Waits until the session has read all bytes from both sides and has written its own.
pub(super) async fn wait_until_quiet(near: &UnixStream, far: &UnixStream) {
    let mut quiet = 0;
    while quiet < 10 {
        yield_now().await;
        quiet = if sys::is_idle_socket(near) && sys::is_idle_socket(far) { quiet + 1 } else { 0 };
    }
}

/// Runs the session until all bytes have been processed and neither side has anything more to send.
pub(super) async fn settle(drive: &mut Drive, server: &mut Stream, stub: &RefCell<StubServer>) {
    let far = duplicate(&drive.server);
    let near = duplicate(&drive.client);
    let answers = serve(server, stub);
    tokio::select! {
        biased;
        end = drive.run() => panic!("ended: {end:?}"),
        () = answers => panic!("the gateway has closed the server's connection"),
        () = wait_until_quiet(&near, &far) => {}
    }
}

/// Simulates a client that sends `sent` and disconnects. Returns the transaction (if the session can continue), and the
/// statements that the server ran.
pub(super) async fn disconnect(sent: &[u8]) -> (Option<LeaseTransaction>, Vec<String>) {
    disconnect_after(sent, b"").await
}

/// Simulates a client that reads the responses to `sent` but disconnects before it reads the responses to `last`.
pub(super) async fn disconnect_after(sent: &[u8], last: &[u8]) -> (Option<LeaseTransaction>, Vec<String>) {
    let Fixture { mut drive, mut client, mut server, near, far, .. } = Fixture::new(None);
    let stub = RefCell::new(StubServer::new());
    client.write_all(sent).await.unwrap();
    settle(&mut drive, &mut server, &stub).await;
    client.write_all(last).await.unwrap();
    drop((client, near));
    assert_eq!(drive.run().await, End::Client);
    let left = tokio::select! {
        () = serve(&mut server, &stub) => panic!("the gateway has closed the server's connection"),
        left = drive.wind_down(PATIENT, async {}) => left,
    };
    // The session must not leave any messages for the next client.
    assert!(left.is_none() || sys::is_idle_socket(&far));
    (left, stub.into_inner().ran)
}
