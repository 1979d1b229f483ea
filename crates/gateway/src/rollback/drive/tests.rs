use std::cell::{Cell, RefCell};
use std::time::Instant;

use lease::Savepoint;
use pgwire::{TERMINATE, encode, query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use fixture::{
    Fixture, Outcome, PATIENT, Pieces, conversation, disconnect, disconnect_after, duplicate,
    run_without_sockets, wait_until_quiet,
};

use super::*;
use crate::buffer::CHUNK;
use crate::rollback::stub::{Cuts, StubServer, bind, execute, parse, serve, sync, write_pieces};
use crate::testing::{pair, run};

/// All messages arrive in one piece, and the client doesn't wait for responses.
const WHOLE: Pieces<'_> = Pieces { up: &Cuts::None, down: &Cuts::None, patient: false };

#[test]
fn example_conversation_has_expected_states_and_statements() {
    let Outcome { received, ran } = run_without_sockets(&conversation());
    let states: Vec<u8> =
        frames(&received).filter(|frame| frame.tag == b'Z').map(|frame| frame.body[0]).collect();
    assert_eq!(states, *b"IITTTIIIITEIIII");
    let ours = ["pgfresh_", "LEVEL", "[look]", "[settings]", "[sources]"];
    let theirs = |sql: &&String| !ours.iter().any(|word| sql.contains(word));
    let theirs: Vec<&str> = ran.iter().filter(theirs).map(String::as_str).collect();
    let expected = [
        "ROWS 1 30",
        "[constraints]",
        "fail",
        "INSERT",
        "SAVEPOINT a",
        "[ROWS 2 9]",
        "[INSERT; COMMIT; DELETE]",
        "INSERT",
        " DELETE",
        "COPY t FROM STDIN",
        "[fail]",
        "COPY t FROM STDIN",
        "COPY broken FROM STDIN",
        "ROWS 1 1",
    ];
    assert_eq!(theirs, expected);
}

#[test]
fn rollback_session_does_not_depend_on_message_splits() {
    let sent = conversation();
    let expected = run_without_sockets(&sent);
    let mut observed = None;
    let mut play = async |up: &Cuts, down: &Cuts| {
        let mut fixture = Fixture::new(None);
        assert_eq!(
            fixture.play(&sent, Pieces { up, down, patient: true }, &expected).await,
            expected,
            "{up:?}, {down:?}"
        );
        assert!(sys::is_idle_socket(&duplicate(&fixture.client)), "{up:?}, {down:?}");
        let now = fixture.observed();
        assert_eq!(&now, observed.get_or_insert_with(|| now.clone()), "{up:?}, {down:?}");
    };
    run(async {
        play(&Cuts::None, &Cuts::None).await;
        for at in 1..sent.len() {
            play(&Cuts::At(at), &Cuts::None).await;
        }
        for length in 1..40 {
            play(&Cuts::Into(vec![length]), &Cuts::None).await;
            play(&Cuts::None, &Cuts::Into(vec![length])).await;
        }
        for at in 1..400 {
            play(&Cuts::None, &Cuts::At(at)).await;
        }
        play(&Cuts::Into(vec![1]), &Cuts::Into(vec![1])).await;
    });
    let observed = observed.unwrap();
    assert!(
        observed.contains(&"INSERT false".to_owned()) && observed.contains(&"fail true".to_owned()),
        "{observed:?}"
    );
    assert!(observed.iter().all(|statement| !statement.contains("pgfresh")), "{observed:?}");
    assert!(observed.concat().ends_with(&sent.escape_ascii().to_string()), "{observed:?}");
}

#[test]
fn large_messages_are_streamed_with_bounded_buffers() {
    let value = 3 << 20;
    let sent = [parse("", "INSERT"), bind("", "", value), execute(""), sync()].concat();
    let expected = run_without_sockets(&sent);
    run(async {
        let mut fixture = Fixture::new(Some(1));
        assert_eq!(fixture.play(&sent, WHOLE, &expected).await, expected);
        // The client doesn't read the rows.
        let rows = query(b"ROWS 60 100000");
        let expected = run_without_sockets(&rows);
        let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(Some(1));
        client.write_all(&rows).await.unwrap();
        let (stub, written) = (RefCell::new(StubServer::new()), RefCell::new(0));
        let floods = async {
            let mut observed = vec![0; 4096];
            loop {
                let count = server.read(&mut observed).await.unwrap();
                for answer in frames(&observed[..count])
                    .flat_map(|frame| stub.borrow_mut().receive(frame.tag, frame.body))
                {
                    for piece in answer.chunks(10_000) {
                        server.write_all(piece).await.unwrap();
                        *written.borrow_mut() += piece.len();
                    }
                }
            }
        };
        let mut floods = std::pin::pin!(floods);
        let stuck = async {
            let (mut before, mut quiet) = (0, 0);
            while quiet < 50 {
                yield_now().await;
                let now = *written.borrow();
                quiet = if now == before && now > 0 { quiet + 1 } else { 0 };
                before = now;
            }
        };
        tokio::select! {
            biased;
            end = drive.run() => panic!("ended: {end:?}"),
            () = &mut floods => {}
            () = stuck => {}
        }
        assert!(*written.borrow() < MAX_WAITING_BYTES + 3 * CHUNK, "{} bytes were taken", written.borrow());
        assert!((MAX_WAITING_BYTES..=MAX_WAITING_BYTES + CHUNK).contains(&drive.session.to_client.len()));
        let mut received = vec![0; expected.received.len()];
        tokio::select! {
            biased;
            end = drive.run() => panic!("ended: {end:?}"),
            () = &mut floods => {}
            read = client.read_exact(&mut received) => drop(read.unwrap()),
        }
        assert!(received == expected.received);
    });
}

#[test]
fn session_survives_client_leaving_at_any_byte() {
    let sent =
        [query(b"SELECT"), query(b"BEGIN"), query(b"INSERT"), query(b"COMMIT"), query(b"DELETE")].concat();
    let ends: Vec<usize> = frames(&sent)
        .scan(0, |at, frame| {
            *at += frame.body.len() + HEADER;
            Some(*at)
        })
        .collect();
    run(async {
        for at in 0..=sent.len() {
            let (left, ran) = disconnect(&sent[..at]).await;
            // An incomplete message must have no effect.
            let whole = ends.iter().filter(|end| **end <= at).count();
            let LeaseTransaction { begun, savepoint, .. } =
                left.unwrap_or_else(|| panic!("left after {at} bytes"));
            let expected = match whole {
                0 => Savepoint::Gone,
                2 | 3 => Savepoint::Open,
                _ => Savepoint::Done,
            };
            assert_eq!((begun, savepoint), (whole > 0, expected), "after {at} bytes");
            let expected =
                run_without_sockets(&sent[..whole.checked_sub(1).map_or(0, |last| ends[last])]).ran;
            assert_eq!(ran, expected, "after {at} bytes");
        }
    });
}

#[test]
fn client_leaving_during_statement_does_not_delay_next() {
    let begin = [query(b"BEGIN"), query(b"INSERT")].concat();
    run(async {
        for (last, sent) in [("COMMIT", &begin[..]), ("ROLLBACK", &begin), ("fail", &begin), ("DELETE", b"")]
        {
            let since = Instant::now();
            let (left, ran) = disconnect_after(sent, &query(last.as_bytes())).await;
            assert!(since.elapsed() < WIND_DOWN_TIMEOUT / 2 && left.is_some(), "{last}");
            assert!(last != "DELETE" || ran.contains(&last.to_owned()), "{ran:?}");
        }
    });
}

#[test]
fn client_leaving_within_forwarded_message_ends_session() {
    let copy = [query(b"COPY t FROM STDIN"), encode(b'd', b"123456")].concat();
    let bound = [parse("", "INSERT"), bind("", "", 50)].concat();
    run(async {
        for (sent, whole) in [(&copy, copy.len()), (&bound, bound.len())] {
            for at in (whole - 6..=whole).rev() {
                let (left, ran) = disconnect(&sent[..at]).await;
                assert_eq!(left.is_some(), at == whole, "after {at} of {whole} bytes: {ran:?}");
            }
        }
        // The gateway sends a CopyFail, which makes the server undo the copy.
        let (left, _) = disconnect(&copy).await;
        assert!(left.is_some());
    });
}

/// Simulates a client that sends `last_words` and disconnects while its statement is running. The server then responds
/// or, with `server_ends`, disconnects too. If `patience` is zero, it does so only after the interrupt. Returns the
/// number of interrupts, whether the session gave up before the response, and whether the session can continue.
async fn end_while_it_runs(last_words: &[u8], server_ends: bool, patience: Duration) -> (u32, bool, bool) {
    let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(None);
    client.write_all(&[&query(b"SELECT")[..], last_words].concat()).await.unwrap();
    let (interrupts, ended, ended_before) = (Cell::new(0), Cell::new(false), Cell::new(false));
    let a_while = async || {
        for _ in 0..20 {
            yield_now().await;
        }
    };
    let session = async {
        assert_eq!(drive.run().await, End::Client);
        ended.set(true);
        drive.wind_down(patience, async { interrupts.set(interrupts.get() + 1) }).await.is_some()
    };
    let answers = async {
        let (mut stub, mut observed) = (StubServer::new(), vec![0; 4096]);
        loop {
            let count = server.read(&mut observed).await.unwrap();
            for frame in frames(&observed[..count]) {
                if frame.tag == b'Q' {
                    a_while().await;
                    client.socket().finish().unwrap();
                    a_while().await;
                    while patience.is_zero() && interrupts.get() == 0 {
                        yield_now().await;
                    }
                    ended_before.set(ended.get());
                    if server_ends {
                        server.socket().finish().unwrap();
                        return std::future::pending().await;
                    }
                }
                server.write_all(&stub.receive(frame.tag, frame.body).concat()).await.unwrap();
            }
        }
    };
    let goes_on = tokio::select! { goes_on = session => goes_on, () = answers => panic!("it never ends") };
    (interrupts.get(), ended_before.get(), goes_on)
}

#[test]
fn statement_outlives_its_client_until_patience_ends() {
    run(async {
        assert_eq!(end_while_it_runs(TERMINATE, false, PATIENT).await, (0, false, true));
        // Half of a Terminate message doesn't count as a Terminate.
        for last_words in [&b""[..], b"X\0\0\0"] {
            assert_eq!(end_while_it_runs(last_words, false, PATIENT).await, (0, true, true));
            assert_eq!(end_while_it_runs(last_words, false, Duration::ZERO).await, (1, true, true));
        }
        // A session can't continue after its server has disconnected.
        assert_eq!(end_while_it_runs(b"", true, Duration::ZERO).await, (1, true, false));
        assert!(!end_while_it_runs(b"", true, PATIENT).await.2);
    });
}

#[test]
fn server_ending_at_any_byte_leaves_complete_messages() {
    let sent = query(b"ROWS 2 40");
    let mut stub = StubServer::new();
    let begun = run_without_sockets(&sent).ran.len();
    let answers = [encode(b'Z', b"T"), stub.receive(b'Q', b"ROWS 2 40\0").concat()].concat();
    assert!(begun > 2);
    run(async {
        for at in 0..answers.len() {
            let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(None);
            client.write_all(&sent).await.unwrap();
            server.write_all(&answers[..at]).await.unwrap();
            server.socket().finish().unwrap();
            assert_eq!(drive.run().await, End::Server, "after {at} bytes");
            let (rest, unsent) = drive.into_client();
            drop(rest);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            // The client's last message may be incomplete.
            let is_between =
                frames(&received).map(|frame| frame.body.len() + HEADER).sum::<usize>() == received.len();
            assert_eq!(unsent.is_some(), is_between, "after {at} bytes: {received:?}");
            let shown = [received, unsent.unwrap_or_default()].concat();
            assert!(answers[6..].starts_with(&shown), "after {at} bytes: {shown:?}");
        }
    });
}

#[test]
fn session_rests_only_between_server_messages() {
    let notice = encode(b'N', b"SNOTICE\0Mhello\0\0");
    run(async {
        for request in [Vec::new(), query(b"SET pgfresh.fault = '40001'")] {
            for at in HEADER..notice.len() {
                let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(None);
                server.write_all(&notice[..at]).await.unwrap();
                client.write_all(&request).await.unwrap();
                let begun = async {
                    for _ in 0..10 {
                        yield_now().await;
                    }
                };
                tokio::select! {
                    biased;
                    end = drive.run() => panic!("{end:?} after {at} bytes"),
                    () = begun => {}
                }
                drive.stops_at_rest = true;
                assert!(timeout(Duration::ZERO, drive.run()).await.is_err(), "after {at} bytes");
                server.write_all(&notice[at..]).await.unwrap();
                assert_eq!(drive.run().await, End::AtRest, "after {at} bytes");
                let ClientSide { client: mut ours, unsent, .. } = drive.exchange_client(pair(None).0, false);
                ours.write_all(&unsent).await.unwrap();
                drop(ours);
                let mut received = Vec::new();
                client.read_to_end(&mut received).await.unwrap();
                assert_eq!(received, notice, "after {at} bytes");
            }
        }
    });
}

#[test]
fn invalid_message_ends_rollback_session_on_either_side() {
    run(async {
        for (bytes, expected) in [
            (&b"Q\0\0\0\x03"[..], None),
            (b"X\0\0\0\x04", None),
            (b"y\0\0\0\x04", Some("invalid frontend message type 121")),
            (b"y\0\0\0\x03", Some("invalid frontend message type 121")),
        ] {
            let Fixture { mut drive, mut client, server: _server, .. } = Fixture::new(None);
            client.write_all(bytes).await.unwrap();
            match (drive.run().await, expected) {
                (End::Client, None) => {}
                (End::Broken(error), Some(words)) => {
                    assert_eq!((&*error.sqlstate, &*error.message), ("08P01", words));
                }
                other => panic!("{bytes:?}: {other:?}"),
            }
        }
        let Fixture { mut drive, client: _client, mut server, .. } = Fixture::new(None);
        server.write_all(b"N\0\0\0\x03").await.unwrap();
        let End::Broken(error) = drive.run().await else { panic!("it goes on") };
        assert_eq!(&*error.message, "the server sent an invalid message length");
        // A session can't continue if its transaction is lost.
        let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(None);
        client.write_all(&query(b"SELECT")).await.unwrap();
        let answers = async {
            assert!(server.read(&mut [0; 4096]).await.unwrap() > 0);
            server.write_all(&encode(b'Z', b"I")).await.unwrap();
        };
        let (end, ()) = tokio::join!(drive.run(), answers);
        assert!(matches!(end, End::Broken(error) if &*error.sqlstate == "25000"));
        assert!(drive.wind_down(PATIENT, async {}).await.is_none());
    });
}

#[test]
fn cancel_request_passes_only_during_client_statement() {
    run(async {
        let Fixture { mut drive, mut client, mut server, .. } = Fixture::new(None);
        let (gate, expected) = (Arc::clone(&drive.gate), run_without_sockets(&query(b"SELECT")));
        let far = duplicate(&drive.server);
        let works = async {
            let mut stub = StubServer::new();
            assert!(gate.wait_for_client_turn().await.is_none(), "nothing runs");
            client.write_all(&query(b"SELECT")).await.unwrap();
            let mut observed = vec![0; 4096];
            let count = server.read(&mut observed).await.unwrap();
            let (mut before, mut answer) = (Vec::new(), Vec::new());
            for frame in frames(&observed[..count]) {
                let to = if frame.tag == b'Q' { &mut answer } else { &mut before };
                to.extend(stub.receive(frame.tag, frame.body).concat());
            }
            // The server runs an injected statement first, which a cancel request must wait for.
            let end_of_ours = async {
                for _ in 0..5 {
                    yield_now().await;
                }
                write_pieces(&mut server, &before, &mut std::iter::repeat(1), &far).await;
            };
            let (entered, ()) = tokio::join!(gate.wait_for_client_turn(), end_of_ours);
            assert!(entered.is_some(), "the client's statement runs");
            // No other statement must run while the cancel request is in transit.
            server.write_all(&answer).await.unwrap();
            for _ in 0..20 {
                yield_now().await;
            }
            assert!(sys::is_idle_socket(&duplicate(&server)), "a statement of ours follows");
            drop(entered);
            let (stub, mut received) = (RefCell::new(stub), vec![0; expected.received.len()]);
            tokio::select! {
                () = serve(&mut server, &stub) => panic!("it has ended"),
                read = client.read_exact(&mut received) => drop(read.unwrap()),
            }
            assert_eq!(received, expected.received);
            assert!(gate.wait_for_client_turn().await.is_none(), "nothing runs any more");
        };
        tokio::select! {
            biased;
            end = drive.run() => panic!("ended: {end:?}"),
            () = works => {}
        }
    });
}

#[test]
fn last_server_error_arrives_during_incomplete_client_message() {
    let error = encode(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0");
    run(async {
        let Fixture { mut drive, mut client, mut server, near, far, .. } = Fixture::new(None);
        let copy = [query(b"COPY t FROM STDIN"), encode(b'd', &[b'x'; 99])].concat();
        client.write_all(&copy[..copy.len() - 9]).await.unwrap();
        let ends = async {
            let (mut stub, mut observed) = (StubServer::new(), vec![0; 4096]);
            loop {
                let count = server.read(&mut observed).await.unwrap();
                for frame in frames(&observed[..count]) {
                    server.write_all(&stub.receive(frame.tag, frame.body).concat()).await.unwrap();
                    if frame.tag == b'Q' {
                        wait_until_quiet(&near, &far).await;
                        server.write_all(&error).await.unwrap();
                        wait_until_quiet(&near, &far).await;
                        server.socket().finish().unwrap();
                    }
                }
            }
        };
        let end = tokio::select! { end = drive.run() => end, () = ends => panic!("it goes on") };
        assert_eq!(end, End::Server);
        assert!(drive.into_client().1.unwrap().ends_with(&error));
    });
}

mod fixture;
mod generated;
