//! Tests that many leases, sessions, names and silent clients don't cause errors, growth, or
//! delays for other clients.
//!
//! The tests are small by default. `PGFRESH_LOAD=full` runs the load in docs/results.md, and prints its figures:
//! `PGFRESH_LOAD=full cargo test --release -p pgfresh --test it load:: -- --nocapture --test-threads=1`

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{ground, mounts, wait_until};

/// SQL for each test's template.
const TEMPLATE: &str =
    "CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item VALUES (1, 'one')";

/// How long the kernel may take to admit a connection.
const WAIT: Duration = Duration::from_secs(5);

fn is_full() -> bool {
    std::env::var("PGFRESH_LOAD").is_ok_and(|value| value == "full")
}

/// Returns `small`, or `full` in a full run.
fn size<T>(small: T, full: T) -> T {
    if is_full() { full } else { small }
}

/// A process's resources.
#[derive(Debug, Clone, Copy)]
struct Usage {
    /// Resident memory, in kB.
    memory: u64,
    descriptors: usize,
}

impl Usage {
    fn of(gateway: &Gateway) -> Self {
        let process = format!("/proc/{}", gateway.serve.child.id());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory = line.trim().trim_end_matches(" kB").parse().unwrap();
        Self { memory, descriptors: fs::read_dir(format!("{process}/fd")).unwrap().count() }
    }

    /// Waits until memory and descriptors are at most slightly above `before`. Allocators and pools keep some
    /// resources, and release what a burst needed only later.
    fn wait_until_flat(gateway: &Gateway, before: Self) {
        wait_until(&format!("memory and descriptors to be those of {before:?}"), || {
            let now = Self::of(gateway);
            now.memory < before.memory * 5 / 4 + 8_000 && now.descriptors < before.descriptors + 64
        });
    }
}

/// Leases a new name, reads the template's data, writes, and disconnects. Returns the time until the first response.
fn lease(gateway: &Gateway, name: &str) -> Result<Duration, String> {
    let begun = Instant::now();
    let mut session = gateway.connect(name, "").map_err(|error| format!("{name}: {error:?}"))?;
    let rows = session.value("SELECT count(*) FROM item").map_err(|error| format!("{name}: {error:?}"))?;
    let took = begun.elapsed();
    if rows != "1" {
        return Err(format!("{name} is not fresh: {rows} rows"));
    }
    session.rows("INSERT INTO item VALUES (2, 'two')").map_err(|error| format!("{name}: {error:?}"))?;
    session.close();
    Ok(took)
}

/// Returns the median, the 99th percentile and the maximum, in ms.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    format!("median {:.2}, p99 {:.2}, largest {:.1} ms", at(50), at(99), at(100))
}

fn assert_no_background_errors(gateway: &Gateway) {
    assert_eq!(gateway.status()["errors"], serde_json::json!({}), "background tasks failed");
}

#[test]
fn leases_one_after_another_leave_nothing_in_pgfresh() {
    let gateway = Gateway::start(15, TEMPLATE, &["--linger", "0"]);
    let count = size(300, 10_000);
    let mut before = None;
    let mut times = Vec::new();
    for number in 0..count {
        if number == count / 10 {
            before = Some(Usage::of(&gateway));
        }
        times.push(lease(&gateway, &format!("name_{number}")).unwrap());
    }
    let (before, after) = (before.unwrap(), Usage::of(&gateway));
    println!("{count} leases: {}; from {before:?} to {after:?}", summary(times));
    Usage::wait_until_flat(&gateway, before);
    assert_no_background_errors(&gateway);
}

/// pgfresh's own sessions and the waiting backends leave enough sessions for the clients.
#[test]
fn workers_on_quarter_of_sessions_get_no_error() {
    let sessions = 8 + Random::new().below(17);
    let set = format!("max_connections={sessions}");
    let gateway = Gateway::start(15, TEMPLATE, &["--linger", "0", "--set", &set]);
    let next = AtomicUsize::new(0);
    let worker = || {
        for _ in 0..size(60, 1_000) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            lease(&gateway, &format!("name_{number}"))
                .unwrap_or_else(|error| panic!("{error}, of {sessions}"));
        }
    };
    thread::scope(|scope| (0..sessions / 4).for_each(|_| drop(scope.spawn(worker))));
    assert_no_background_errors(&gateway);
}

#[test]
fn many_workers_for_a_while() {
    let gateway = Gateway::start(15, TEMPLATE, &["--linger", "0"]);
    let (workers, span) = (size(16, 64), Duration::from_secs(size(3, 60)));
    let next = AtomicUsize::new(0);
    let work = |span: Duration| -> Vec<Duration> {
        let begun = Instant::now();
        thread::scope(|scope| {
            let worker = || {
                let mut times = Vec::new();
                while begun.elapsed() < span {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    times.push(lease(&gateway, &format!("name_{number}")).unwrap());
                }
                times
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        })
    };
    // The first load takes equally long, so that the pool has grown to what these workers need.
    work(span);
    let before = Usage::of(&gateway);
    let times = work(span);
    let after = Usage::of(&gateway);
    println!(
        "{workers} workers, {span:?}: {} leases, {}; from {before:?} to {after:?}",
        times.len(),
        summary(times)
    );
    Usage::wait_until_flat(&gateway, before);
    assert_no_background_errors(&gateway);
}

/// Many connections can begin before the gateway accepts the first of them.
#[test]
fn bursts_of_connections_wait_for_gateway() {
    // The kernel shortens longer queues.
    let longest: usize = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    let gateway = Gateway::start(15, TEMPLATE, &[]);
    let (pid, address) = (Pid::from_child(&gateway.serve.child), gateway.serve.address().parse().unwrap());
    kill_process(pid, Signal::STOP).unwrap();
    let connections: Result<Vec<_>, _> =
        (0..longest.min(400)).map(|_| TcpStream::connect_timeout(&address, WAIT)).collect();
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(connections.map(|all| all.len()).map_err(|error| error.to_string()), Ok(longest.min(400)));
    lease(&gateway, "after").unwrap();
}

#[test]
fn many_names_at_once() {
    let gateway = Gateway::start(15, TEMPLATE, &[]);
    let count = size(60, 300);
    let begun = Instant::now();
    let times: Vec<_> = thread::scope(|scope| {
        let (gateway, lease) = (&gateway, &lease);
        let all: Vec<_> =
            (0..count).map(|number| scope.spawn(move || lease(gateway, &format!("name_{number}")))).collect();
        all.into_iter().map(|one| one.join().unwrap().unwrap()).collect()
    });
    println!("{count} names at once: all after {:?}, {}", begun.elapsed(), summary(times));
    assert_no_background_errors(&gateway);
}

/// The place has space for few databases, so pgfresh refuses further clients, which would otherwise wait forever.
#[test]
fn a_full_budget_is_refused() {
    let Some(scene) = mounts::scene() else { return };
    let psql = ground::psql();
    // Each successful session stays open, because it waits for a line from a FIFO without writers.
    let script = format!(
        "mkfifo hold; exec 3<>hold; pids=
         for number in $(seq 30); do
             begun=$(date +%s%N)
             {psql} -XAt -v VERBOSITY=verbose -d \"name_$number\" -c \"SELECT 'fine'\" -f - <hold >said 2>&1 &
             pids=\"$pids $!\"
             until [ -s said ]; do sleep 0.01; done
             echo \"$(( ($(date +%s%N) - begun) / 1000000 )) $(head -1 said)\"
             rm said
         done
         kill $pids; wait; rm hold"
    );
    let place = "mount -t tmpfs -o size=260m none \"$MOUNTED\"";
    let mounted = scene.directory.join("mounted");
    let at = mounted.to_str().unwrap();
    let words = ["run", "--place", at, "--linger", "60s", "--", "sh", "-c", &script];
    let outcome = mounts::run(&scene, place, &words);
    let (fine, refused): (Vec<_>, Vec<_>) = outcome.stdout.lines().partition(|line| line.ends_with(" fine"));
    assert!(fine.len() >= 4 && refused.len() >= 8, "{outcome}");
    let mut waits = Vec::new();
    for line in &refused {
        assert!(line.contains("53100") || line.contains("no room"), "{line}");
        waits.push(Duration::from_millis(line.split(' ').next().unwrap().parse().unwrap()));
    }
    println!("{} databases, then {} refusals: {}", fine.len(), refused.len(), summary(waits));
}

#[test]
fn idle_sessions_do_not_slow_busy_ones() {
    let (idle, busy) = (size(100, 2000), size(10, 100));
    let connections = format!("max_connections={}", idle + busy + 100);
    let gateway = Gateway::start(15, TEMPLATE, &["--set", &connections]);
    let rate = |busy: usize, span: Duration| {
        let (asked, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..busy {
                scope.spawn(|| {
                    let mut session = gateway.connect("busy", "").unwrap();
                    while !ended.load(Ordering::Relaxed) {
                        session.value("SELECT 1").unwrap();
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(span / 5);
            let (begun, before) = (Instant::now(), asked.load(Ordering::Relaxed));
            thread::sleep(span);
            let asked = u32::try_from(asked.load(Ordering::Relaxed) - before).unwrap();
            let rate = f64::from(asked) / begun.elapsed().as_secs_f64();
            ended.store(true, Ordering::Relaxed);
            rate
        })
    };
    let span = Duration::from_secs(size(1, 10));
    let alone = rate(busy, span);
    let before = Usage::of(&gateway);
    let sessions: Vec<_> = (0..idle).map(|_| gateway.connect("idle", "").unwrap()).collect();
    let after = Usage::of(&gateway);
    let beside = rate(busy, span);
    let more = after.memory.saturating_sub(before.memory);
    println!(
        "{busy} busy sessions: {alone:.0} statements a second alone, {beside:.0} beside {idle} idle ones, which \
         took {more} kB"
    );
    drop(sessions);
}

#[test]
fn silent_clients_delay_no_other_client() {
    let gateway = Gateway::start(15, TEMPLATE, &["--linger", "0"]);
    let measure = |round: &str| -> Vec<Duration> {
        let count = size(60, 1000);
        (0..count).map(|number| lease(&gateway, &format!("{round}_{number}")).unwrap()).collect()
    };
    let alone = measure("alone");
    // The allocator keeps the first wave's memory, so the second wave must not need more.
    let after: Vec<_> = ["first", "second"]
        .map(|wave| {
            let slow = slow_clients(&gateway, size(100, 2000));
            let beside = measure(wave);
            println!("beside {} slow clients {}, {:?}", slow.len(), summary(beside), Usage::of(&gateway));
            drop_unanswered(slow);
            thread::sleep(Duration::from_secs(1));
            Usage::of(&gateway)
        })
        .to_vec();
    println!("alone {}; without them again {after:?}", summary(alone));
    Usage::wait_until_flat(&gateway, after[0]);
}

/// Opens connections that send only a length, half a startup packet, half an HTTP request, or nothing.
fn slow_clients(gateway: &Gateway, count: usize) -> Vec<TcpStream> {
    let said = [&b""[..], b"\0\0\0\x40", b"\0\0\0\x40\0\x03\0\0user\0post", b"GET / HT"];
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(gateway.serve.address()).unwrap();
        stream.write_all(said[number % said.len()]).unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

/// Closes connections. The gateway must not have responded to an incomplete request.
fn drop_unanswered(slow: Vec<TcpStream>) {
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut said = [0; 64];
        if let Ok(count) = stream.read(&mut said) {
            assert!(!said[..count].starts_with(b"R"), "an answer to half a packet");
        }
    }
}
