//! Several pgfresh behind a load balancer, one of which goes: its sessions end, the others go on, and new leases work at once.
//!
//! With `PGFRESH_TEST_DEPTH=10` it leases 1,000 databases for each way to go, and prints the figures of docs/results.md:
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
use crate::common::{depth, wait_until};
use machines::{BALANCER, Fleet, Replica, in_a_network, is_possible};

/// How many clients lease at the same time.
const WORKERS: usize = 8;
/// When a client gives up a machine that says nothing more. Also libpq has it as `tcp_user_timeout`.
const SILENCE: Duration = Duration::from_secs(4);

/// When a client that waits for an answer asks whether the machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// How a replica goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    /// Its pod is deleted: SIGTERM.
    Terminated,
    /// SIGKILL.
    Killed,
    /// SIGKILL to its PostgreSQL alone.
    WithoutPostgres,
    /// Its machine is cut off.
    Unplugged,
}

const GOINGS: [Going; 4] = [Going::Terminated, Going::Killed, Going::WithoutPostgres, Going::Unplugged];

impl Going {
    /// Whether a client may hear this of it. Only a process that still lives can say anything, and PostgreSQL, too, hangs up on
    /// those who still authenticate when it is to end.
    fn explains(self, ending: &Ending) -> bool {
        let told = ending.sqlstate.as_deref();
        match self {
            Self::Terminated if ending.in_session => {
                told == Some("57P01") && ending.hint.as_deref() == Some(HINT)
            }
            Self::Terminated => matches!(told, None | Some("57P01")),
            Self::Killed | Self::Unplugged => told.is_none(),
            // The server's processes notice that they are alone, and so does pgfresh, which then ends.
            Self::WithoutPostgres if ending.in_session => matches!(told, None | Some("57P01" | "57P02")),
            Self::WithoutPostgres => matches!(told, None | Some("57P01" | "57P02" | "08006")),
        }
    }
}

/// What to do about a pgfresh that ends.
const HINT: &str = "The database is removed. Lease another one from a pgfresh that runs.";

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    /// Not before it had begun.
    in_session: bool,
    /// Nothing where the connection broke off without a word.
    sqlstate: Option<String>,
    hint: Option<String>,
    /// What the driver says, for one who reads of a failure.
    words: String,
}

/// A leased database and a session with it.
struct Leased {
    /// The replica that has it, as its URL says.
    at: SocketAddr,
    name: String,
    runtime: Runtime,
    client: Client,
    connection: JoinHandle<Result<(), Error>>,
}

impl Leased {
    /// Connects to where the answer to a request for a database leads.
    fn open(answer: &Value) -> Result<Self, Ending> {
        let mut config: Config = answer["url"].as_str().unwrap().parse().unwrap();
        // The one ends what it says in vain, the other the wait for an answer.
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

    /// The first value that `sql` returns.
    fn value(&mut self, sql: &str) -> Result<String, Ending> {
        let Self { runtime, client, connection, .. } = self;
        runtime.block_on(async {
            match client.simple_query(sql).await {
                Ok(messages) => Ok(first(&messages)),
                // What the server said before it hung up is an error of the connection.
                Err(error) if error.code().is_none() => {
                    let ended = timeout(SILENCE, connection).await.expect("an end").unwrap();
                    Err(ending(&ended.err().unwrap_or(error)))
                }
                Err(error) => Err(ending(&error)),
            }
        })
    }

    /// Reads what has come meanwhile, as a driver does that listens all the time.
    fn listen(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }

    /// Uses the database as a test does: it is fresh, and keeps what is written.
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
    let told = error.as_db_error();
    Ending {
        in_session: true,
        sqlstate: told.map(|error| error.code().code().to_owned()),
        hint: told.and_then(|error| error.hint()).map(str::to_owned),
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

/// What the clients saw.
#[derive(Default)]
struct Seen {
    /// How long a lease took through the balancer, and when it was asked for.
    leases: Vec<(Instant, Duration)>,
    spread: BTreeMap<SocketAddr, usize>,
    /// Of sessions, with the replica that they were with.
    endings: Vec<(SocketAddr, Ending)>,
    /// Requests to the balancer that failed, and when they were made.
    refused: Vec<(Instant, String)>,
}

/// A request for a database, through the balancer.
fn lease(fleet: &Fleet) -> Result<Value, String> {
    match fleet.certificate.ask(BALANCER, "POST /v1/databases", "") {
        Ok((201, answer)) => Ok(answer),
        Ok((status, answer)) => Err(format!("{status}: {answer}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Leases, uses and releases until `left` is none.
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
        // The one that has it is asked, not the balancer. It may be gone.
        let name = answer["name"].as_str().unwrap();
        let _: io::Result<_> = fleet.certificate.ask(at, &format!("DELETE /v1/databases/{name}"), "");
    }
}

/// Where the URL leads.
fn address_of(answer: &Value) -> SocketAddr {
    let config: Config = answer["url"].as_str().unwrap().parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else { panic!("{answer}") };
    SocketAddr::new(host.parse().unwrap(), config.get_ports()[0])
}

/// A session with each replica, that says nothing meanwhile.
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

/// The median, the 99th percentile and the largest, in ms.
fn summary(times: impl IntoIterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    format!("median {:.1}, p99 {:.1}, largest {:.1} ms", at(50), at(99), at(100))
}

/// One replica of `count` goes while clients lease.
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
    // What was on its way to the replica is lost with it; from then on each request is answered by another.
    let late: Vec<_> = seen.refused.iter().filter(|(begun, _)| *begun > ended).collect();
    assert!(late.is_empty(), "after {victim_at} had gone, {going:?}, the balancer refused leases: {late:?}");
    // The others have not noticed.
    for sitter in sitters.iter_mut().filter(|sitter| sitter.at != victim_at) {
        assert_eq!(sitter.value("SELECT count(*) FROM item"), Ok("2".to_owned()), "{}", sitter.at);
    }
    // One that said nothing meanwhile hears of it, too.
    let sitter = sitters.iter_mut().find(|sitter| sitter.at == victim_at).unwrap();
    sitter.listen();
    let told = sitter.value("SELECT 1").expect_err("a session with a replica that is gone");
    assert!(going.explains(&told), "{going:?}: {told:?}");
    drop(sitters);
    assert!(seen.spread.len() == fleet.replicas.len(), "not all had leases: {:?}", seen.spread);
}

/// Lets it go, and waits until it is gone.
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
fn of_two_replicas_one_goes_and_the_other_goes_on() {
    if is_possible() {
        for going in depth::some_of(GOINGS) {
            in_a_network(|| play(2, going));
        }
    }
}

#[test]
fn of_three_replicas_one_goes_and_the_others_go_on() {
    if is_possible() {
        for going in depth::some_of(GOINGS) {
            in_a_network(|| play(3, going));
        }
    }
}
