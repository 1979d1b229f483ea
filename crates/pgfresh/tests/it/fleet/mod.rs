//! Tests several pgfresh replicas behind a load balancer, when one replica ends: its sessions end, the other sessions
//! continue, and new leases work immediately.
//!
//! With `PGFRESH_TEST_DEPTH=10`, leases 1,000 databases for each way that a replica can end, and prints the figures
//! for docs/results.md:
//! `PGFRESH_TEST_DEPTH=10 cargo test --release -p pgfresh --test it fleet:: -- --nocapture --test-threads=1`

mod machines;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use crate::common::random::Random;
use crate::common::{WAIT_TIMEOUT, as_root, depth, wait_until};
use machines::{BALANCER, Fleet, Replica, in_a_network};

/// Number of clients that lease concurrently.
const WORKERS: usize = 8;
/// Time after which a client gives up on a silent machine, as with libpq's `tcp_user_timeout`.
const SILENCE: Duration = Duration::from_secs(4);

/// Time after which a waiting client probes whether the machine still exists.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Way that a replica ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    /// SIGTERM, as for a deleted pod.
    Terminated,
    /// SIGKILL to pgfresh.
    Killed,
    /// SIGKILL to its PostgreSQL server only.
    WithoutPostgres,
    /// The machine's network is down.
    Unplugged,
}

const GOINGS: [Going; 4] = [Going::Terminated, Going::Killed, Going::WithoutPostgres, Going::Unplugged];

impl Going {
    /// Whether a client might see `ending` if the replica ends in this way. Only a living process can send an error.
    /// When PostgreSQL shuts down, it also closes connections that are still authenticating.
    fn explains(self, ending: &Ending) -> bool {
        let sqlstate = ending.sqlstate.as_deref();
        match self {
            Self::Terminated if ending.in_session => {
                sqlstate == Some("57P01") && ending.hint.as_deref() == Some(HINT)
            }
            Self::Terminated => matches!(sqlstate, None | Some("57P01")),
            Self::Killed | Self::Unplugged => sqlstate.is_none(),
            // The server's processes notice that the postmaster has ended. pgfresh notices it too, and then ends.
            Self::WithoutPostgres if ending.in_session => matches!(sqlstate, None | Some("57P01" | "57P02")),
            Self::WithoutPostgres => matches!(sqlstate, None | Some("57P01" | "57P02" | "08006")),
        }
    }
}

/// Hint in the error from a pgfresh that is ending.
const HINT: &str = "The database was removed. Lease a new database from a running pgfresh server.";

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    /// Whether the session had been established.
    in_session: bool,
    /// SQLSTATE of the error, or `None` if the connection ended without an error.
    sqlstate: Option<String>,
    hint: Option<String>,
    /// The driver's message, for reporting a failure.
    words: String,
}

/// Leased database, and a session in it.
struct Leased {
    /// Address of the database's replica, from the URL.
    at: SocketAddr,
    name: String,
    runtime: Runtime,
    client: Client,
    connection: JoinHandle<Result<(), Error>>,
}

impl Leased {
    /// Connects to the database in the response to a request.
    fn open(answer: &Value) -> Result<Self, Ending> {
        let mut config: Config = answer["url"].as_str().unwrap().parse().unwrap();
        // The user timeout limits how long data stay unacknowledged, and the keepalives limit
        // the wait for a response.
        config.connect_timeout(SILENCE).tcp_user_timeout(SILENCE);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(3);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) = runtime
            .block_on(config.connect(NoTls))
            .map_err(|error| Ending { in_session: false, ..ending(&error) })?;
        let connection = runtime.spawn(connection);
        let name = answer["name"].as_str().unwrap().to_owned();
        Ok(Self { at: address_of(answer), name, runtime, client, connection })
    }

    /// Returns the first value in the result of `sql`.
    fn value(&mut self, sql: &str) -> Result<String, Ending> {
        let Self { runtime, client, connection, .. } = self;
        runtime.block_on(async {
            match client.simple_query(sql).await {
                Ok(messages) => Ok(first(&messages)),
                // If the server sent an error before it closed the connection, the connection returns that error.
                Err(error) if error.code().is_none() => {
                    let ended = timeout(WAIT_TIMEOUT, connection).await.expect("an end").unwrap();
                    Err(ending(&ended.err().unwrap_or(error)))
                }
                Err(error) => Err(ending(&error)),
            }
        })
    }

    /// Reads messages that have arrived meanwhile, as a driver that always listens does.
    fn listen(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }

    /// Uses the database as a test does: checks that the database is fresh, and that written rows stay.
    fn use_it(&mut self, statements: usize) -> Result<(), Ending> {
        assert_eq!(self.value("SELECT count(*) FROM item")?, "1", "{} is not fresh", self.name);
        for id in 2..statements + 2 {
            self.value(&format!("INSERT INTO item SELECT {id}, pg_sleep(0.002)::text"))?;
        }
        assert_eq!(self.value("SELECT count(*) FROM item")?, (statements + 1).to_string());
        Ok(())
    }
}

fn ending(error: &Error) -> Ending {
    let error = error.as_db_error();
    Ending {
        in_session: true,
        sqlstate: error.map(|error| error.code().code().to_owned()),
        hint: error.and_then(|error| error.hint()).map(str::to_owned),
        words: format!("{error:?}"),
    }
}

fn first(messages: &[SimpleQueryMessage]) -> String {
    let value = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    value.unwrap_or_default().to_owned()
}

/// Observations of the clients.
#[derive(Default)]
struct Seen {
    /// Start and duration of each lease through the load balancer.
    leases: Vec<(Instant, Duration)>,
    spread: BTreeMap<SocketAddr, usize>,
    /// How sessions ended, with each session's replica.
    endings: Vec<(SocketAddr, Ending)>,
    /// Failed requests to the load balancer, with the times when they were sent.
    refused: Vec<(Instant, String)>,
}

/// Requests a database through the load balancer.
fn lease(fleet: &Fleet) -> Result<Value, String> {
    match fleet.certificate.ask(BALANCER, "POST /v1/databases", "") {
        Ok((201, answer)) => Ok(answer),
        Ok((status, answer)) => Err(format!("{status}: {answer}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Leases, uses and releases databases until `left` is 0.
fn work(fleet: &Fleet, left: &AtomicUsize, seen: &Mutex<Seen>) {
    let mut random = Random::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let begun = Instant::now();
        let answer = match lease(fleet) {
            Ok(answer) => answer,
            Err(error) => {
                seen.lock().unwrap().refused.push((begun, error));
                left.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        seen.lock().unwrap().leases.push((begun, begun.elapsed()));
        let at = address_of(&answer);
        let used = Leased::open(&answer).and_then(|mut leased| leased.use_it(random.below(5)));
        let mut seen = seen.lock().unwrap();
        *seen.spread.entry(at).or_default() += 1;
        if let Err(ending) = used {
            seen.endings.push((at, ending));
            continue;
        }
        drop(seen);
        // The request goes to the database's replica, not to the load balancer. The replica might have ended.
        let name = answer["name"].as_str().unwrap();
        let _: io::Result<_> = fleet.certificate.ask(at, &format!("DELETE /v1/databases/{name}"), "");
    }
}

/// Returns the address in the URL.
fn address_of(answer: &Value) -> SocketAddr {
    let config: Config = answer["url"].as_str().unwrap().parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else { panic!("{answer}") };
    SocketAddr::new(host.parse().unwrap(), config.get_ports()[0])
}

/// Opens a session on each replica, for clients that stay silent.
fn sitters(fleet: &Fleet) -> Vec<Leased> {
    let mut sitters: Vec<Leased> = Vec::new();
    wait_until("a lease of each replica", || {
        let mut leased = Leased::open(&lease(fleet).unwrap()).unwrap();
        if sitters.iter().all(|sitter| sitter.at != leased.at) {
            leased.value("INSERT INTO item VALUES (7, 'seven')").unwrap();
            sitters.push(leased);
        }
        sitters.len() == fleet.replicas.len()
    });
    sitters
}

/// Returns the median, the 99th percentile and the maximum, in ms.
fn summary(times: impl IntoIterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    format!("median {:.1}, p99 {:.1}, largest {:.1} ms", at(50), at(99), at(100))
}

/// Ends one of `count` replicas while clients lease databases.
fn play(count: u8, going: Going) {
    let fleet = Fleet::start(count);
    let leases = depth::rounds(100).min(1000) as usize;
    let (left, seen) = (AtomicUsize::new(leases), Mutex::<Seen>::default());
    let mut sitters = sitters(&fleet);
    let mut random = Random::new();
    let victim = random.below(fleet.replicas.len());
    let after = leases / 5 + random.below(leases / 2);
    let (gone, ended) = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&fleet, &left, &seen))).collect();
        wait_until("some leases", || left.load(Ordering::Relaxed) <= leases - after);
        let gone = Instant::now();
        lose(&fleet.replicas[victim], going);
        let ended = Instant::now();
        for worker in workers {
            worker.join().unwrap();
        }
        (gone, ended)
    });
    let seen = seen.into_inner().unwrap();
    report(count, going, (gone, ended), &seen);
    let victim_at = fleet.replicas[victim].address;
    let unexpected: Vec<_> =
        seen.endings.iter().filter(|(at, ending)| *at != victim_at || !going.explains(ending)).collect();
    assert!(unexpected.is_empty(), "{victim_at} has gone, {going:?}, and sessions ended: {unexpected:?}");
    // Requests that were in transit to the replica fail with it. Another replica responds to each later request.
    let late: Vec<_> = seen.refused.iter().filter(|(begun, _)| *begun > ended).collect();
    assert!(late.is_empty(), "after {victim_at} had gone, {going:?}, the balancer refused leases: {late:?}");
    // Sessions on the other replicas continue.
    for sitter in sitters.iter_mut().filter(|sitter| sitter.at != victim_at) {
        assert_eq!(sitter.value("SELECT count(*) FROM item"), Ok("2".to_owned()), "{}", sitter.at);
    }
    // A silent client also gets the error.
    let sitter = sitters.iter_mut().find(|sitter| sitter.at == victim_at).unwrap();
    sitter.listen();
    let error = sitter.value("SELECT 1").expect_err("a session with a replica that is gone");
    assert!(going.explains(&error), "{going:?}: {error:?}");
    drop(sitters);
    assert!(seen.spread.len() == fleet.replicas.len(), "not all had leases: {:?}", seen.spread);
}

/// Ends the replica, and waits for its end.
fn lose(replica: &Replica, going: Going) {
    match going {
        Going::Terminated => replica.terminate(),
        Going::Killed => replica.kill(),
        Going::WithoutPostgres => replica.kill_postgres(),
        Going::Unplugged => return replica.unplug(),
    }
    let code = match going {
        Going::Terminated => Some(0),
        Going::WithoutPostgres => Some(1),
        _ => None,
    };
    assert_eq!(replica.code(), code, "{going:?}");
}

/// Prints the figures.
fn report(count: u8, going: Going, (gone, ended): (Instant, Instant), seen: &Seen) {
    let before = seen.leases.iter().filter(|(begun, took)| *begun + *took < gone).map(|(_, took)| *took);
    let after = seen.leases.iter().filter(|(begun, _)| *begun >= gone);
    let first = after.clone().map(|(begun, took)| *begun + *took - gone).min().unwrap();
    println!(
        "{count} replicas, one {going:?} after {} leases; that took {:?}",
        before.clone().count(),
        ended - gone
    );
    println!("    spread: {:?}", seen.spread.values().collect::<Vec<_>>());
    println!("    leases before: {}", summary(before));
    println!("    leases after: {}; the first came {first:?} after", summary(after.map(|(_, took)| *took)));
    let mut endings = BTreeMap::<_, usize>::new();
    for (_, ending) in &seen.endings {
        *endings.entry(ending).or_default() += 1;
    }
    println!("    sessions that ended: {endings:?}");
    let refused: Vec<_> = seen
        .refused
        .iter()
        .map(|(begun, error)| format!("{:.3} s: {error}", begun.duration_since(gone).as_secs_f64()))
        .collect();
    println!("    requests that failed: {refused:?}");
}

#[test]
fn one_replica_continues_without_the_other() {
    if as_root("make a network") {
        for going in depth::some_of(GOINGS) {
            in_a_network(|| play(2, going));
        }
    }
}

#[test]
fn two_replicas_continue_without_the_third() {
    if as_root("make a network") {
        for going in depth::some_of(GOINGS) {
            in_a_network(|| play(3, going));
        }
    }
}
