//! Tests the gateway as its clients see it: drivers' messages, connections that break, and
//! independence from other clients.

pub(crate) mod drivers;
mod fault_fidelity;
mod faults;
mod invalid_bytes;
mod load;
mod network;
mod reused_backends;
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::client::{Client, Failure, failure, message, packet, query, startup};
use crate::common::serve::Serve;
use crate::common::{Scene, User, on_every_major, postgres, wait_until};
use invalid_bytes::{
    invalid_bytes_get_the_servers_answer, other_protocols_get_the_servers_error,
    sessions_see_local_clients_and_their_parameters,
};
use rustix::process::{Pid, Signal, kill_process};

/// Upper bound for the growth of pgfresh's memory while gigabytes pass through a session. It is far smaller than any
/// of the values that pass.
const FLAT: u64 = 8 << 20;

fn start(major: u32) -> Serve {
    start_with(major, &[])
}

fn start_with(major: u32, options: &[&str]) -> Serve {
    Serve::at(Scene::new(User::Ourselves), [&["--postgres", &postgres(major)], options].concat())
}

impl Serve {
    /// Opens a session with `database`.
    fn session(&self, database: &str) -> Client {
        self.session_with(database, &[]).unwrap()
    }

    fn session_with(&self, database: &str, parameters: &[(&str, &str)]) -> Result<Client, Failure> {
        Client::open(&self.address(), self.secret(), &startup(database, parameters))
    }

    /// Sends a cancel request, and waits until it has taken effect.
    fn cancel(&self, key: &[u8]) {
        let mut client = Client::knock(&self.address());
        client.send(&packet(80_877_102, key));
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }

    /// Returns the number of bytes of memory that pgfresh itself uses.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

on_every_major! {
    any_name_connects_to_a_database
    refused_sessions_get_the_reason
    session_options_apply_to_the_lease
    a_dialogue_may_be_cut_anywhere
    bytes_behind_an_encryption_request_are_refused
    the_server_negotiates_the_protocol
    a_key_cancels_only_its_session
    a_session_finds_nothing_of_the_one_before
    new_role_and_database_settings_apply
    unused_databases_can_be_dropped
    waiting_backends_make_room_for_clients
    expired_waiting_processes_are_replaced
    large_values_pass_through_in_little_memory
    copies_go_both_ways
    notifications_come_unasked_and_pipelines_need_no_turns
    a_client_may_end_before_its_answer
    garbage_stalls_and_resets_harm_nobody
    a_session_hears_why_its_backend_is_gone
    sessions_get_errors_when_the_server_ends
    other_protocols_get_the_servers_error
    invalid_bytes_get_the_servers_answer
    sessions_see_local_clients_and_their_parameters
}

fn sqlstate(result: Result<impl Sized, Failure>) -> String {
    result.err().expect("an error").sqlstate
}

fn any_name_connects_to_a_database(major: u32) {
    let serve = start(major);
    let mut one = serve.session("orders 7");
    assert_eq!(one.value("SELECT current_database()").unwrap(), "orders 7");
    one.value("CREATE TABLE t AS SELECT 42 AS n").unwrap();
    assert_eq!(serve.session("orders 7").value("SELECT n FROM t").unwrap(), "42");
    assert_eq!(sqlstate(serve.session("other").value("SELECT n FROM t")), "42P01");
    for name in ["postgres", "template1"] {
        assert_eq!(serve.session(name).value("SELECT current_database()").unwrap(), name);
    }
    // Frameworks create databases from the maintenance database, and might keep it open.
    let mut admin = serve.session("postgres");
    admin.value("CREATE DATABASE made").unwrap();
    let mut made = serve.session("made");
    made.value("CREATE TABLE by_hand AS SELECT 1").unwrap();
    made.close();
    let mut made = serve.session("made");
    assert_eq!(made.value("SELECT count(*) FROM by_hand").unwrap(), "1");
    made.close();
    one.close();
    for name in ["made", "orders 7"] {
        admin.value(&format!("DROP DATABASE \"{name}\"")).unwrap();
    }
    assert_eq!(sqlstate(serve.session("made").value("SELECT count(*) FROM by_hand")), "42P01");
    assert_eq!(sqlstate(serve.session("orders 7").value("SELECT n FROM t")), "42P01");
}

fn refused_sessions_get_the_reason(major: u32) {
    let serve = start(major);
    let wrong = Client::open(&serve.address(), "guess", &startup("a", &[]));
    assert_eq!(sqlstate(wrong), "28P01");
    let of = |parameters: &[(&str, &str)]| sqlstate(serve.session_with("a", parameters));
    assert_eq!(of(&[("options", "-c pgfresh.template=none")]), "3D000");
    assert_eq!(of(&[("options", "-c pgfresh.tmplate=none")]), "42704");
    assert_eq!(of(&[("pgfresh.linger", "soon")]), "22023");
    // The server generates these errors, not the gateway.
    assert_eq!(of(&[("no_such_setting", "1")]), "42704");
    assert_eq!(of(&[("options", "-c work_mem=much")]), "22023");
    for (bytes, state) in [
        (packet(4 << 16, b"user\0postgres\0\0"), "0A000"),
        (packet(0x0003_0000, b"database\0a\0\0"), "28000"),
        (packet(0x0003_0000, b"user\0postgres\0"), "08P01"),
        (b"\0\0\xff\xff".to_vec(), "08P01"),
        (b"\x16\x03\x01\x02\0\x01".to_vec(), "08P01"),
    ] {
        let mut client = Client::knock(&serve.address());
        client.send(&bytes);
        assert_eq!(failure(&client.read()).sqlstate, state, "{bytes:?}");
        assert_eq!(client.read().0, 0);
    }
}

fn session_options_apply_to_the_lease(major: u32) {
    let serve = start(major);
    let parameters = [("options", "-c pgfresh.linger=0 -c work_mem=123kB"), ("application_name", "me")];
    let mut session = serve.session_with("brief", &parameters).unwrap();
    assert_eq!(session.value("SHOW work_mem").unwrap(), "123kB");
    assert_eq!(session.value("SHOW application_name").unwrap(), "me");
    assert_eq!(session.value("SHOW pgfresh.linger").unwrap(), "0");
    session.value("CREATE TABLE t AS SELECT 1").unwrap();
    session.close();
    let mut admin = serve.session("postgres");
    let left = "SELECT count(*) FROM pg_database WHERE datname = 'brief'";
    wait_until("the end of a lease that does not linger", || admin.value(left).unwrap() == "0");
    // A lingering lease keeps its changes, unless its client requests a reset.
    serve.session("kept").value("CREATE TABLE t AS SELECT 1").unwrap();
    assert_eq!(serve.session("kept").value("SELECT count(*) FROM t").unwrap(), "1");
    wait_until("the other session to be over", || {
        serve.session_with("kept", &[("pgfresh.reset", "1")]).is_ok_and(|mut session| {
            session.value("SELECT count(*) FROM pg_class WHERE relname = 't'").unwrap() == "0"
        })
    });
}

fn a_dialogue_may_be_cut_anywhere(major: u32) {
    let serve = start(major);
    let hello = [packet(80_877_103, b""), packet(80_877_104, b"")];
    let opening = startup("cut", &[]);
    let password = message(b'p', format!("{}\0", serve.secret()).as_bytes());
    let rest = [query("SELECT 'X'"), message(b'S', b"")].concat();
    let dialogue = |cut: &dyn Fn(&mut Client, &[u8])| {
        let mut client = Client::knock(&serve.address());
        for request in &hello {
            cut(&mut client, request);
            let mut answer = [0];
            client.stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"N");
        }
        cut(&mut client, &opening);
        assert_eq!(client.read().0, b'R');
        cut(&mut client, &password);
        client.read_startup_response().unwrap();
        cut(&mut client, &rest);
        (client.until_ready(), client.until_ready())
    };
    let whole = dialogue(&|client, bytes| client.send(bytes));
    assert_eq!(whole.0.iter().map(|message| message.0).collect::<Vec<_>>(), b"TDCZ");
    let bytewise = dialogue(&|client, bytes| bytes.iter().for_each(|byte| client.send(&[*byte])));
    assert_eq!(bytewise, whole);
    for at in 0..opening.len().max(password.len()) {
        let pieces = dialogue(&|client, bytes| {
            let (one, other) = bytes.split_at(at.min(bytes.len()));
            client.send(one);
            thread::yield_now();
            client.send(other);
        });
        assert_eq!(pieces, whole, "cut at {at}");
    }
}

fn bytes_behind_an_encryption_request_are_refused(major: u32) {
    let serve = start(major);
    for code in [80_877_103, 80_877_104] {
        let mut client = Client::knock(&serve.address());
        client.send(&[packet(code, b""), startup("injected", &[])].concat());
        assert_eq!(failure(&client.read()).sqlstate, "08P01");
    }
}

fn the_server_negotiates_the_protocol(major: u32) {
    let serve = start(major);
    for minor in [2, 9999] {
        let body = b"user\0postgres\0database\0newer\0_pq_.unheard_of\0x\0\0";
        let mut client = Client::knock(&serve.address());
        client.send(&packet(0x0003_0000 + minor, body));
        let (tag, said) = client.read();
        assert_eq!((tag, &said[8..]), (b'v', &b"_pq_.unheard_of\0"[..]));
        assert_eq!(client.read().0, b'R');
        client.send(&message(b'p', format!("{}\0", serve.secret()).as_bytes()));
        assert!(client.until_ready().iter().all(|message| message.0 != b'v'));
        // The response equals the server's own.
        let directory = serve.session("postgres").value("SHOW unix_socket_directories").unwrap();
        let socket = Path::new(directory.trim_matches('"')).join(".s.PGSQL.5432");
        let mut direct = UnixStream::connect(socket).unwrap();
        direct.write_all(&packet(0x0003_0000 + minor, body)).unwrap();
        let mut answer = vec![0; 5 + said.len()];
        direct.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message(b'v', &said));
    }
}

fn a_key_cancels_only_its_session(major: u32) {
    let serve = start(major);
    let mut session = serve.session("slow");
    let key = session.key.clone();
    session.send(&query("SELECT pg_sleep(60)"));
    // The test waits until the statement runs, because an earlier cancel request doesn't have
    // an effect on any server.
    let mut watcher = serve.session("slow");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until("the statement to run", || watcher.value(running).unwrap() == "1");
    let mut wrong = key.clone();
    *wrong.last_mut().unwrap() ^= 1;
    serve.cancel(&wrong);
    assert_eq!(watcher.value(running).unwrap(), "1");
    serve.cancel(&key);
    let error = session.until_ready().into_iter().find(|message| message.0 == b'E').unwrap();
    assert_eq!(failure(&error).sqlstate, "57014");
    assert_eq!(session.value("SELECT 1").unwrap(), "1");
    watcher.close();
    // A session without a cancel request leaves its backend to the next session, which gets a different key.
    let mut first = serve.session("kept");
    let (key, backend) = (first.key.clone(), first.value("SELECT pg_backend_pid()").unwrap());
    assert_eq!(u32::from_be_bytes(*key.first_chunk().unwrap()).to_string(), backend);
    first.close();
    let mut second = None;
    wait_until("the backend to be given back", || {
        let mut session = serve.session("kept");
        let same = session.value("SELECT pg_backend_pid()").unwrap() == backend;
        if same {
            second = Some(session);
        } else {
            session.close();
        }
        same
    });
    let mut second = second.unwrap();
    assert_ne!(second.key, key);
    second.send(&query("SELECT pg_sleep(0.3), 7"));
    serve.cancel(&key);
    assert!(second.until_ready().iter().all(|message| message.0 != b'E'));
}

fn a_session_finds_nothing_of_the_one_before(major: u32) {
    let serve = start(major);
    for mess in [
        "SET work_mem = '99kB'",
        "SET ROLE pg_monitor",
        "CREATE TEMP TABLE t ()",
        "PREPARE p AS SELECT 1",
        "SELECT pg_advisory_lock(7)",
        "LISTEN news",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "BEGIN; SET LOCAL work_mem = '99kB'",
        "BEGIN; SELECT 1/0",
        "COPY pg_class TO STDOUT",
    ] {
        let mut session = serve.session("tidy");
        session.ask(mess);
        session.close();
        let mut next = serve.session("tidy");
        for (sql, clean) in [
            ("SHOW work_mem", "4MB"),
            ("SELECT current_user", "postgres"),
            ("SELECT count(*) FROM pg_class WHERE relname = 't' AND pg_table_is_visible(oid)", "0"),
            ("SELECT count(*) FROM pg_prepared_statements", "0"),
            ("SELECT count(*) FROM pg_cursors WHERE name = 'c'", "0"),
            ("SELECT count(*) FROM pg_listening_channels()", "0"),
            ("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", "0"),
        ] {
            assert_eq!(next.value(sql).unwrap(), clean, "{sql} after {mess}");
        }
        assert_eq!(next.ask("SELECT 1").last().unwrap(), &(b'Z', b"I".to_vec()), "{mess}");
        next.close();
    }
}

fn new_role_and_database_settings_apply(major: u32) {
    let serve = start(major);
    let mut other = serve.session("other");
    for (number, set) in ["ALTER DATABASE kept SET", "ALTER ROLE postgres SET"].into_iter().enumerate() {
        let mut session = serve.session("kept");
        let backend = session.value("SELECT pg_backend_pid()").unwrap();
        session.close();
        wait_until("the backend to be given to the next", || {
            let mut session = serve.session("kept");
            let same = session.value("SELECT pg_backend_pid()").unwrap() == backend;
            session.close();
            same
        });
        other.value(&format!("{set} work_mem = '1{number}7kB'")).unwrap();
        assert_eq!(serve.session("kept").value("SHOW work_mem").unwrap(), format!("1{number}7kB"), "{set}");
    }
    // A waiting backend in a new database also has the new setting.
    assert_eq!(serve.session("new").value("SHOW work_mem").unwrap(), "117kB");
}

fn unused_databases_can_be_dropped(major: u32) {
    let serve = start(major);
    let mut one = serve.session("one");
    for drop in ["DROP DATABASE other", "/* tidy */ drop database other"] {
        let mut other = serve.session("other");
        other.value("CREATE TABLE t ()").unwrap();
        other.close();
        // A backend in the other database waits for a session, and the server would refuse after five seconds.
        one.value(drop).unwrap();
        assert_eq!(sqlstate(serve.session("other").value("SELECT FROM t")), "42P01");
    }
}

fn waiting_backends_make_room_for_clients(major: u32) {
    let serve = start_with(major, &["--set", "max_connections=14"]);
    for name in 0..8 {
        let mut session = serve.session(&format!("crowd {name}"));
        session.value("SELECT 1").unwrap();
        session.close();
    }
    // Sessions with other parameters can't use any waiting backend.
    let other = [("application_name", "other")];
    let open = |name| serve.session_with(&format!("crowd {name}"), &other);
    let mut sessions: Vec<_> = (0..8).map(|name| open(name).unwrap()).collect();
    for session in &mut sessions {
        assert_eq!(session.value("SELECT 1").unwrap(), "1");
    }
    let more: Vec<_> = (0..14).map(open).take_while(Result::is_ok).collect();
    assert!(more.len() < 14, "there is an end to it");
    assert_eq!(sqlstate(open(0)), "53300");
}

fn expired_waiting_processes_are_replaced(major: u32) {
    let serve = start_with(major, &["--set", "authentication_timeout=1"]);
    let mut watcher = serve.session("watcher");
    let backend: u32 = watcher.value("SELECT pg_backend_pid()").unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{backend}/stat")).unwrap();
    // In the file, the state and the parent follow the name in parentheses.
    let postmaster = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_owned();
    wait_until("the server to give up", || {
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
        let words = |child: &str| fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        // A forked process has the postmaster's name until it gets its task.
        !children.split_ascii_whitespace().any(|child| words(child).contains("\0-D\0"))
    });
    let mut session = serve.session_with("late", &[("application_name", "other")]).unwrap();
    assert_eq!(session.value("SELECT 1").unwrap(), "1");
}

fn large_values_pass_through_in_little_memory(major: u32) {
    let serve = start(major);
    let mut session = serve.session("large");
    session.value("SELECT 1").unwrap();
    let before = serve.memory();
    // The server sends 200 MB to a client that doesn't read at first.
    session.send(&query("SELECT repeat('x', 200 << 20)"));
    thread::sleep(Duration::from_millis(300));
    let (mut chunk, mut count, mut tail) = (vec![0; 1 << 20], 0, Vec::new());
    while !tail.ends_with(b"Z\0\0\0\x05I") {
        let read = session.stream.read(&mut chunk).unwrap();
        count += read;
        tail.extend_from_slice(&chunk[read.saturating_sub(9)..read]);
        assert!(serve.memory() < before + FLAT, "{} of memory after {count} bytes", serve.memory());
    }
    assert!(count > 200 << 20);
    // The client sends 100 MB as a parameter.
    let value = vec![b'y'; 100 << 20];
    let mut bind = b"\0\0\0\0\0\x01".to_vec();
    bind.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
    bind.extend(value);
    bind.extend(b"\0\0");
    session.send(&message(b'P', b"\0SELECT length($1::text)\0\0\0"));
    session.send(&message(b'B', &bind));
    assert!(serve.memory() < before + FLAT);
    session.send(&[message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat());
    let answer = session.until_ready();
    assert!(answer.iter().any(|message| message.1.ends_with(b"104857600")), "{answer:?}");
    assert!(serve.memory() < before + FLAT);
}

fn copies_go_both_ways(major: u32) {
    let serve = start(major);
    let mut session = serve.session("copy");
    session.value("CREATE TABLE t (n int, word text)").unwrap();
    session.send(&query("COPY t FROM STDIN"));
    assert_eq!(session.read().0, b'G');
    let mut sum: u64 = 0;
    for chunk in 0..100 {
        let rows: Vec<_> = (0..1000).map(|n| format!("{}\tX\n", chunk * 1000 + n)).collect();
        let rows = rows.concat();
        sum += rows.len() as u64;
        session.send(&message(b'd', rows.as_bytes()));
    }
    session.send(&message(b'c', b""));
    session.until_ready();
    assert_eq!(session.value("SELECT count(DISTINCT n) FROM t").unwrap(), "100000");
    let rows = session.ask("COPY t TO STDOUT");
    let copied: u64 = rows.iter().filter(|row| row.0 == b'd').map(|row| row.1.len() as u64).sum();
    assert_eq!(copied, sum);
    // The client aborts the COPY.
    session.send(&query("COPY t FROM STDIN"));
    session.send(&message(b'd', b"1\tX\n"));
    session.send(&message(b'f', b"no more\0"));
    assert_eq!(session.until_ready()[1].0, b'E');
    assert_eq!(session.value("SELECT count(*) FROM t").unwrap(), "100000");
}

fn notifications_come_unasked_and_pipelines_need_no_turns(major: u32) {
    let serve = start(major);
    let mut listener = serve.session("news");
    listener.value("LISTEN news").unwrap();
    let mut speaker = serve.session("news");
    speaker.value("NOTIFY news, 'X'").unwrap();
    let (tag, body) = listener.read();
    assert_eq!((tag, &body[4..]), (b'A', &b"news\0X\0"[..]));
    assert_eq!(body[..4], speaker.key[..4], "the process id of who has sent it");
    let group = [
        message(b'P', b"\0SELECT $1::int + 1\0\0\0"),
        message(b'B', b"\0\0\0\0\0\x01\0\0\0\x0241\0\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat();
    let mut stream = speaker.stream.try_clone().unwrap();
    let writer = thread::spawn(move || (0..5000).for_each(|_| stream.write_all(&group).unwrap()));
    for _ in 0..5000 {
        let tags: Vec<_> = speaker.until_ready().iter().map(|message| message.0).collect();
        assert_eq!(tags, b"12DCZ");
    }
    writer.join().unwrap();
}

fn a_client_may_end_before_its_answer(major: u32) {
    let serve = start(major);
    for end in ["half", "terminate"] {
        let mut session = serve.session("ends");
        session.send(&query("CREATE TABLE IF NOT EXISTS t AS SELECT pg_sleep(0.2)"));
        if end == "half" {
            session.stream.shutdown(Shutdown::Write).unwrap();
        } else {
            session.send(&message(b'X', b""));
        }
        let answer = session.until_ready();
        assert_eq!(answer.last().unwrap().0, b'Z', "{end}");
        assert_eq!(session.read().0, 0);
    }
    // The server completes a statement whose client has gone, and the backend ends.
    let mut session = serve.session("ends");
    let backend = session.value("SELECT pg_backend_pid()").unwrap();
    session.send(&query("SELECT pg_sleep(0.2); CREATE TABLE gone ()"));
    drop(session);
    let mut watcher = serve.session("ends");
    wait_until("the statement to have its effect", || {
        watcher.value("SELECT to_regclass('gone') IS NOT NULL").unwrap() == "t"
    });
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}");
    wait_until("its backend to end", || watcher.value(&left).unwrap() == "0");
}

fn garbage_stalls_and_resets_harm_nobody(major: u32) {
    let serve = start(major);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut session = serve.session("good");
            let mut count = 0_u32;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(session.value("SELECT 'fine'").unwrap(), "fine");
                count += 1;
            }
            count
        });
        let mut stalled = Vec::new();
        let mut seed = 0x9e37_79b9_u32;
        for round in 0..300_usize {
            let mut garbage = Vec::new();
            for _ in 0..round % 97 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                garbage.extend(seed.to_be_bytes());
            }
            let opening = startup("bad", &[]);
            let mut client = match round % 3 {
                0 => serve.session("bad"),
                _ => Client::knock(&serve.address()),
            };
            let bytes = if round % 3 == 1 { &opening[..round % opening.len()] } else { &garbage };
            let _ = client.stream.write_all(bytes);
            match round % 4 {
                0 => stalled.push(client),
                1 => rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap(),
                2 => drop(client.stream.shutdown(Shutdown::Both)),
                _ => {}
            }
        }
        assert!(stalled.len() > 50);
        done.store(true, Ordering::Relaxed);
        assert!(good.join().unwrap() > 0);
    });
    let mut watcher = serve.session("watcher");
    let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'bad' AND state = 'active'";
    wait_until("the server to be rid of them", || watcher.value(left).unwrap() == "0");
}

fn a_session_hears_why_its_backend_is_gone(major: u32) {
    let serve = start(major);
    let mut victim = serve.session("victim");
    let mut other = serve.session("other");
    let pid = victim.value("SELECT pg_backend_pid()").unwrap();
    other.value(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    assert_eq!(failure(&victim.read()).sqlstate, "57P01");
    assert_eq!(victim.read().0, 0);
    // If a backend is killed, the server ends all other backends and restarts.
    let mut victim = serve.session("victim");
    let pid: i32 = victim.value("SELECT pg_backend_pid()").unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    for mut session in [victim, other] {
        let mut said = Vec::new();
        loop {
            match session.read() {
                (0, _) => break,
                message => said.push(message),
            }
        }
        assert_eq!(failure(said.last().expect("a word")).sqlstate, "57P02");
    }
}

fn sessions_get_errors_when_the_server_ends(major: u32) {
    let mut serve = start(major);
    let mut session = serve.session("last");
    let postmaster = i32::try_from(serve.ready["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(postmaster).unwrap(), Signal::KILL).unwrap();
    let said = session.read();
    assert!(["57P01", "57P02"].contains(&failure(&said).sqlstate.as_str()), "{said:?}");
    assert_eq!(session.read().0, 0);
    // `serve` ends with an error, unless it notices the closed input before the server's end.
    serve.end();
    let mut serve = start(major);
    let mut session = serve.session("last");
    session.send(&query("SELECT pg_sleep(60)"));
    assert!(serve.end());
    assert_eq!(failure(&session.read()).sqlstate, "57P01");
    assert_eq!(session.read().0, 0);
}
