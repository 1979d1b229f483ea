//! Tests races: several clients run statements, request faults and list them, while their lease is reset and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{ISOLATIONS, TEMPLATE};
use crate::common::client::{Client, message, query, startup};
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major};

on_every_major! {
    faults_race_with_sessions_and_lease_ends
}

/// Name of the lease.
const NAME: &str = "orders";
/// Path of the lease in the HTTP API.
const LEASE: &str = "/v1/databases/orders";
/// Path of the lease's faults in the HTTP API.
const FAULTS: &str = "/v1/databases/orders/faults";
/// Number of concurrent clients.
const CLIENTS: usize = 4;
/// Number of actions for each client.
const ACTIONS: usize = 30;

const STATEMENTS: [&str; 9] = [
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "INSERT INTO accounts SELECT max(id) + 1, 0 FROM accounts",
    "SELECT repeat('x', 100000)",
    "COPY accounts TO STDOUT",
    "BEGIN; UPDATE accounts SET balance = 1; COMMIT; SELECT 1",
    "SELECT pg_sleep(0.01)",
];

/// Returns a random fault, which might be invalid.
fn fault(random: &mut Random) -> Value {
    let effects = [
        ("error", "40001"),
        ("error", "57014"),
        ("error", "57P01"),
        ("error", "53300"),
        ("error", "failover"),
        ("connection", "reset"),
        ("connection", "silent"),
        ("delay", "1ms"),
        ("delay", "1h"),
        ("bandwidth", "10kB"),
        ("bandwidth", "1B"),
    ];
    let moments = [
        "commit",
        "before statement",
        "during statement",
        "after statement",
        "before commit",
        "after commit",
        "connect",
    ];
    let (name, value) = *random.choose(&effects);
    let mut fault = json!({"at": random.choose(&moments), "times": 1 + random.below(3)});
    fault[name] = value.into();
    if random.chance(30) {
        fault["statement"] = (*random.choose(&["SELECT", "INSERT", "COMMIT", "… accounts"])).into();
    }
    if random.chance(30) {
        fault["nth"] = (1 + random.below(4)).into();
    }
    fault
}

/// Returns a statement's bytes in either protocol, and sometimes only a part of them.
fn bytes(random: &mut Random, sql: &str) -> Vec<u8> {
    let mut bytes = if random.chance(50) {
        query(sql)
    } else {
        let parse = message(b'P', format!("\0{sql}\0\0\0").as_bytes());
        let rest = [message(b'B', b"\0\0\0\0\0\0\0\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")];
        [parse, rest.concat()].concat()
    };
    if random.chance(5) {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// Acts as one client: sends statements, reads some responses, and requests faults in both ways.
fn act(gateway: &Gateway, mut random: Random) {
    use std::io::{Read, Write};
    let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
    let mut client = None::<Client>;
    for _ in 0..ACTIONS {
        let Some(open) = &mut client else {
            let mut opened = Client::knock(&address);
            opened.stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
            let password = message(b'p', format!("{secret}\0").as_bytes());
            let sent = opened.stream.write_all(&startup(NAME, &[]));
            if sent.and_then(|()| opened.stream.write_all(&password)).is_ok() {
                client = Some(opened);
            }
            continue;
        };
        let request = fault(&mut random);
        let result = match random.below(10) {
            0 => {
                gateway.http("POST", FAULTS, &request.to_string());
                Ok(())
            }
            1 => {
                gateway.http("GET", FAULTS, "");
                Ok(())
            }
            2 => open.stream.write_all(&query(&format!("SET pgfresh.fault = '{request}'"))),
            3 => {
                client = None;
                continue;
            }
            4 | 5 => {
                // A silent connection doesn't send anything within the timeout.
                let _ = open.stream.read(&mut [0; 8192]);
                Ok(())
            }
            _ => {
                let sql = *random.choose(&STATEMENTS);
                open.stream.write_all(&bytes(&mut random, sql))
            }
        };
        if result.is_err() {
            client = None;
        }
    }
}

fn faults_race_with_sessions_and_lease_ends(major: u32) {
    let mut seeds = Random::new();
    let isolation = *seeds.choose(&ISOLATIONS);
    let gateway = Gateway::start(major, TEMPLATE, &["--isolation", isolation, "--linger", "60s"]);
    for _ in 0..depth::rounds(2) {
        let seed = seeds.number();
        println!("seed {seed:#x} in isolation {isolation} on PostgreSQL {major}");
        let mut random = Random::seeded(seed);
        assert_eq!(gateway.http("POST", "/v1/databases", &json!({"name": NAME}).to_string()).0, 201);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let own = Random::seeded(random.number());
                    let gateway = &gateway;
                    scope.spawn(move || act(gateway, own))
                })
                .collect();
            let (gateway, is_over) = (&gateway, &is_over);
            let mut own = Random::seeded(random.number());
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    match own.below(3) {
                        0 => gateway.reset(NAME),
                        1 => gateway.http("DELETE", LEASE, ""),
                        _ => gateway.http("GET", FAULTS, ""),
                    };
                    thread::sleep(own.moment(std::time::Duration::from_millis(100)));
                }
            });
            for client in clients {
                client.join().unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        gateway.http("DELETE", LEASE, "");
        // The next lease doesn't have a fault, and has the template's rows.
        let mut session = gateway.connect_in_time(NAME, "");
        assert_eq!(session.value("SELECT sum(id) || ' ' || sum(balance) FROM accounts").unwrap(), "1 100");
        assert_eq!(gateway.http("GET", FAULTS, "").1["faults"], json!([]));
        session.rows("BEGIN; UPDATE accounts SET balance = 2; COMMIT").unwrap();
        session.close();
        assert_eq!(gateway.http("DELETE", LEASE, "").0 / 100, 2);
    }
}
