use pgwire::{encode, query};
use tokio::io::AsyncWriteExt;

use super::*;
use crate::testing::{pair, run};

/// Returns true if `discard_session_state` succeeds with a backend that responds in these pieces. The backend sends
/// each piece after the gateway has read the previous one.
async fn discard_succeeds(pieces: &[&[u8]]) -> bool {
    let (mut server, mut backend) = pair(None);
    let answers = async {
        let mut request = vec![0; DISCARD_ALL.len()];
        backend.read_exact(&mut request).await.unwrap();
        assert_eq!(request, DISCARD_ALL);
        for piece in pieces {
            backend.write_all(piece).await.unwrap();
            // The other future now reads the piece.
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(discard_session_state(&mut server), answers).0.unwrap()
}

/// Returns true if `discard_session_state` succeeds with a backend that sends all bytes together and then closes the
/// connection.
async fn discard_succeeds_before_close(message: &[u8]) -> bool {
    let (mut server, mut backend) = pair(None);
    backend.write_all(message).await.unwrap();
    backend.socket().finish().unwrap();
    discard_session_state(&mut server).await.unwrap()
}

#[test]
fn backend_discard_is_recognized_at_any_split() {
    let answer = [encode(b'C', b"DISCARD ALL\0"), encode(b'Z', b"I")].concat();
    run(async {
        for at in 1..=answer.len() {
            assert!(discard_succeeds(&[&answer[..at], &answer[at..]]).await, "{at}");
        }
        let notice = encode(b'N', b"SWARNING\0\0");
        assert!(discard_succeeds(&[&[&notice[..], &answer].concat()]).await);
    });
}

#[test]
fn failing_or_overtalking_backend_is_not_reused() {
    let error = encode(b'E', b"SERROR\0VERROR\0C57014\0Mcanceling statement due to statement timeout\0\0");
    let done = encode(b'C', b"DISCARD ALL\0");
    let ready = |status: u8| encode(b'Z', &[status]);
    run(async {
        let failed = [error.clone(), ready(b'I')].concat();
        for at in 1..=failed.len() {
            assert!(!discard_succeeds(&[&failed[..at], &failed[at..]]).await, "error, cut at {at}");
        }
        // The next client would receive any bytes that follow a complete response, however late they arrive.
        let answer = [&done[..], &ready(b'I')].concat();
        let notice = encode(b'N', &vec![b'x'; 1024 - 5 - answer.len()]);
        assert!(discard_succeeds(&[&[&notice[..], &answer].concat()]).await);
        let news = encode(b'A', b"\0\0\0\x07news\0\0");
        for more in [&news[..], &error, b"N"] {
            assert!(!discard_succeeds(&[&[&notice, &answer, more].concat()]).await, "{more:?}");
            assert!(
                !discard_succeeds_before_close(&[&notice, &answer, more].concat()).await,
                "{more:?}, and the end"
            );
        }
        for (message, what) in [
            ([done.clone(), ready(b'T')].concat(), "a transaction"),
            ([done.clone(), ready(b'E')].concat(), "a failed transaction"),
            (done.clone(), "an end without ReadyForQuery"),
            (Vec::new(), "an end without a word"),
            ([done, ready(b'I')].concat(), "an end afterwards"),
        ] {
            assert!(!discard_succeeds_before_close(&message).await, "{what}");
        }
    });
}

/// Returns the last message for a client that sent `up` and received `down`.
fn client_receives(up: &[u8], down: &[u8], end: Option<End>) -> Option<Vec<u8>> {
    client_receives_when(false, up, down, end)
}

/// Like [`client_receives`], except that with `closing`, pgfresh has asked the server to terminate the session.
fn client_receives_when(closing: bool, up: &[u8], down: &[u8], end: Option<End>) -> Option<Vec<u8>> {
    let mut conversation = Conversation::new(false);
    conversation.observe_client(up, |_| ());
    conversation.observe_server(down);
    final_message(&conversation, end, closing)
}

#[test]
fn client_gets_end_error_once_between_messages() {
    let has = |message: Option<Vec<u8>>, code: &str| {
        message.is_some_and(|message| String::from_utf8_lossy(&message).contains(&format!("C{code}\0")))
    };
    let row = encode(b'D', b"\0\x01\0\0\0\x05hello");
    let error = encode(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0");
    for (ended, code) in [(Some(End::Server), "57P02"), (Some(End::Closed), "57P01"), (None, "57P01")] {
        assert!(has(client_receives(b"", b"", ended), code));
        assert!(has(client_receives(&query(b"SELECT 1"), &row, ended), code));
        for at in 1..row.len() {
            assert_eq!(client_receives(&query(b"SELECT 1"), &row[..at], ended), None, "{at}");
        }
        // The server has already sent its reason.
        assert_eq!(client_receives(b"", &error, ended), Some(Vec::new()));
        for at in 1..error.len() {
            assert_eq!(client_receives(b"", &error[..at], ended), None, "{at}");
        }
    }
    // If pgfresh asked the server to terminate the session, the client learns this reason even if the server crashed.
    assert!(has(client_receives_when(true, b"", b"", Some(End::Server)), "57P01"));
    // A server doesn't respond to an invalid length, but a closing gateway must still send its reason.
    assert_eq!(client_receives(b"Q\0\0\0\x03", b"", Some(End::Server)), Some(Vec::new()));
    assert!(has(client_receives(b"Q\0\0\0\x03", b"", None), "57P01"));
}
