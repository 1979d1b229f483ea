//! Tests delays: each delay ends with its lease, with a reset, with its client, and with pgfresh,
//! wherever the delay is.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{ISOLATIONS, TEMPLATE};
use crate::common::client::{Client, message, query, startup};
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major, wait_until};

on_every_major! {
    delays_end_with_lease_client_and_pgfresh
    half_closed_client_waits_for_its_answer
    delay_ends_with_its_server
}

/// Name of the lease.
const NAME: &str = "orders";

/// Event that ends a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Release,
    Reset,
    Client,
    Pgfresh,
}

/// Delay that a test requests.
#[derive(Debug, Clone, Copy)]
struct Delay {
    at: &'static str,
    extended: bool,
    end: End,
}

impl Delay {
    fn all() -> Vec<Self> {
        let places = [
            "connect",
            "before statement",
            "during statement",
            "after statement",
            "before commit",
            "commit",
            "after commit",
        ];
        let mut all = Vec::new();
        for at in places {
            for end in [End::Release, End::Reset, End::Client, End::Pgfresh] {
                for extended in [false, true] {
                    if at != "connect" || !extended {
                        all.push(Self { at, extended, end });
                    }
                }
            }
        }
        all
    }

    /// Returns the delayed statement.
    fn statement(self) -> &'static str {
        if self.at.ends_with("commit") { "COMMIT" } else { "INSERT INTO accounts VALUES (9, 9)" }
    }

    fn messages(self) -> Vec<u8> {
        if !self.extended {
            return query(self.statement());
        }
        [
            message(b'P', format!("\0{}\0\0\0", self.statement()).as_bytes()),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
        ]
        .concat()
    }
}

/// Counts the gateway's connections that their clients have closed (`CLOSE_WAIT` in `include/net/tcp_states.h`).
fn half_closed(gateway: &Gateway) -> usize {
    gateway.connections().iter().filter(|fields| fields[3] == "08").count()
}

fn count(gateway: &Gateway, table: &str) -> String {
    gateway.connect_in_time(NAME, "").value(&format!("SELECT count(*) FROM {table}")).unwrap()
}

/// Requests a delay of an hour, and lets a client wait in it.
fn begin(gateway: &Gateway, delay: Delay) -> Client {
    let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
    let mut fault = json!({"delay": "1h", "at": delay.at});
    if delay.at != "connect" {
        fault["statement"] = delay.statement().into();
    }
    assert_eq!(gateway.http("POST", "/v1/databases", &json!({"name": NAME}).to_string()).0, 201);
    let path = format!("/v1/databases/{NAME}/faults");
    assert_eq!(gateway.http("POST", &path, &fault.to_string()).0, 201);
    let client = if delay.at == "connect" {
        let mut client = Client::knock(&address);
        client.send(&startup(NAME, &[]));
        client
    } else {
        let mut client = Client::open(&address, secret, &startup(NAME, &[])).unwrap();
        if delay.at.ends_with("commit") {
            client.ask("BEGIN");
            client.ask("INSERT INTO accounts VALUES (9, 9)");
        }
        client.send(&delay.messages());
        client
    };
    wait_until("the delay", || gateway.http("GET", &path, "").1["faults"][0]["fired"] == 1);
    client.stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    assert!(client.stream.peek(&mut [0]).is_err(), "an answer in spite of the delay");
    client.stream.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    client
}

/// Runs a delay until it ends. Returns the gateway if it still runs.
fn play(gateway: Gateway, delay: Delay) -> Option<Gateway> {
    let mut client = begin(&gateway, delay);
    match delay.end {
        End::Release => {
            assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{NAME}"), "").0 / 100, 2);
        }
        End::Reset => assert_eq!(gateway.reset(NAME).0, 204),
        End::Client => {
            drop(client);
            wait_until("the end of the client's connection", || half_closed(&gateway) == 0);
            // The lease continues, with the delayed statement.
            let expected = if delay.at == "connect" { "1" } else { "2" };
            wait_until("the delayed statement", || count(&gateway, "accounts") == expected);
            assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{NAME}"), "").0 / 100, 2);
            return Some(gateway);
        }
        End::Pgfresh => {
            drop(gateway);
            client.until_ready();
            return None;
        }
    }
    let mut last = client.until_ready();
    while last.last().is_some_and(|message| message.0 != 0) {
        last.push(client.read());
    }
    let error = last.iter().find(|message| message.0 == b'E');
    assert!(
        error.is_some_and(|(_, body)| String::from_utf8_lossy(body).contains("57P01")),
        "{delay:?}: {last:?}"
    );
    assert_eq!(last.last().unwrap().0, 0, "{delay:?}");
    // The next lease doesn't have a fault, and has the template's rows.
    assert_eq!(count(&gateway, "accounts"), "1", "{delay:?}");
    assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{NAME}"), "").0 / 100, 2);
    Some(gateway)
}

/// A client that closes its writing side receives its response after the delay.
fn half_closed_client_waits_for_its_answer(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--linger", "60s"]);
    let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
    assert_eq!(gateway.http("POST", "/v1/databases", &json!({"name": NAME}).to_string()).0, 201);
    let fault = json!({"delay": "1s", "statement": "INSERT"});
    assert_eq!(gateway.http("POST", &format!("/v1/databases/{NAME}/faults"), &fault.to_string()).0, 201);
    let mut client = Client::open(&address, secret, &startup(NAME, &[])).unwrap();
    let begun = Instant::now();
    client.send(&query("INSERT INTO accounts VALUES (9, 9)"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let tags: Vec<u8> = client.until_ready().iter().map(|message| message.0).collect();
    assert_eq!(tags, b"CZ");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// When a server ends, its sessions end too, whether they are delayed or not.
fn delay_ends_with_its_server(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--isolation", "server", "--linger", "60s"]);
    for at in ["before statement", "after statement"] {
        let delay = Delay { at, extended: false, end: End::Release };
        let mut client = begin(&gateway, delay);
        assert_eq!(gateway.http("POST", &format!("/v1/databases/{NAME}/crash"), "").0 / 100, 2);
        let mut last = client.until_ready();
        while last.last().is_some_and(|message| message.0 != 0) {
            last.push(client.read());
        }
        assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{NAME}"), "").0 / 100, 2);
    }
}

fn delays_end_with_lease_client_and_pgfresh(major: u32) {
    let mut random = Random::new();
    let isolation = *random.choose(&ISOLATIONS);
    let start = || Gateway::start(major, TEMPLATE, &["--isolation", isolation, "--linger", "60s"]);
    let mut gateway = start();
    for delay in depth::some_of(Delay::all()) {
        println!("{delay:?} in isolation {isolation} on PostgreSQL {major}");
        gateway = play(gateway, delay).unwrap_or_else(start);
    }
}
