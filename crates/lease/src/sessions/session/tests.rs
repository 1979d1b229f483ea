use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use pgwire::encode;

use super::*;
use crate::address::DatabaseAddress;
use crate::runtime::fake::{FakeLeases, POSITION, params, pid_of};

const HOUR: Duration = Duration::from_hours(1);

/// A link to a client that may have disconnected, counting the calls to `is_gone`.
#[derive(Debug, Default)]
struct FakeLink {
    gone: AtomicBool,
    looks: AtomicUsize,
}

impl FakeLink {
    fn go(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl ClientLink for FakeLink {
    fn is_gone(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.gone.load(Ordering::Relaxed)
    }

    fn close(&self) {}
}

impl FakeLeases {
    fn enter(
        &self,
        name: &str,
        params: &StartupParams,
        link: Option<Arc<dyn ClientLink>>,
    ) -> Result<Connected, LeaseError> {
        let request = ConnectRequest { client: link, ..ConnectRequest::new(name, params) };
        match self.leases.connect(&request)? {
            Entered::Plain(connected) => Ok(connected),
            other @ Entered::Transaction(_) => panic!("a plain session was expected: {other:?}"),
        }
    }

    fn connect(&self, name: &str, params: &StartupParams) -> Connected {
        self.enter(name, params, None).unwrap()
    }

    /// Leaves an idle backend in the lease with this name and returns the backend's process id.
    fn leave_waiting(&self, name: &str, params: &StartupParams) -> u32 {
        let Connected { backend, guard } = self.connect(name, params);
        let pid = pid_of(&backend);
        guard.give_back(backend);
        pid
    }

    /// Returns the process ids of the lease's idle backends.
    fn waiting(&self, name: &str) -> Vec<u32> {
        let core = self.leases.0.lock();
        let id = core.table.database_named(name).unwrap();
        let copy = core.pool.get(id).and_then(Resources::copy).unwrap();
        copy.waiting.iter().map(|waiting| pid_of(&waiting.backend)).collect()
    }

    /// Returns the number of sessions in the lease, first as counted by the table and then as the number of clients in
    /// the pool.
    fn sessions(&self, name: &str) -> (usize, usize) {
        let core = self.leases.0.lock();
        let lease = core.table.lease(name).unwrap();
        (lease.sessions, core.pool.clients(lease.database.unwrap()).len())
    }

    fn counters(&self) -> (u64, u64) {
        let core = self.leases.0.lock();
        (core.counters.warm, core.counters.cold)
    }
}

#[test]
fn returned_backend_serves_one_next_client() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let pid = fake.leave_waiting("db", &params);
    assert_eq!((fake.waiting("db"), fake.sessions("db")), (vec![pid], (0, 0)));
    let one = fake.connect("db", &params);
    let two = fake.connect("db", &params);
    assert_eq!(pid_of(&one.backend), pid);
    assert_ne!(pid_of(&two.backend), pid);
    assert_eq!((fake.counters(), fake.sessions("db")), ((1, 2), (2, 2)));
    assert!(fake.waiting("db").is_empty());
    let pids = [pid_of(&one.backend), pid_of(&two.backend)];
    one.guard.give_back(one.backend);
    two.guard.give_back(two.backend);
    assert_eq!((fake.waiting("db"), fake.sessions("db")), (pids.to_vec(), (0, 0)));
}

#[test]
fn ended_or_talking_idle_backend_is_not_reused() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    for what in ["terminated", "ended without a word", "notice", "half a message"] {
        let pid = fake.leave_waiting("db", &params);
        match what {
            "terminated" => fake.server.terminate(pid),
            "ended without a word" => fake.server.send(pid, b"", true),
            "notice" => fake.server.send(pid, &encode(b'N', b"SWARNING\0\0"), false),
            _ => fake.server.send(pid, b"N", false),
        }
        let connected = fake.connect("db", &params);
        assert_ne!(pid_of(&connected.backend), pid, "{what}");
        assert!(sys::is_idle_socket(&connected.backend.stream), "{what}");
        assert!(fake.waiting("db").is_empty(), "{what}");
        fake.server.expect_closed(pid);
    }
}

#[test]
fn first_living_idle_backend_is_reused() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let sessions: Vec<_> = (0..4).map(|_| fake.connect("db", &params)).collect();
    let pids: Vec<u32> = sessions.iter().map(|session| pid_of(&session.backend)).collect();
    for Connected { backend, guard } in sessions {
        guard.give_back(backend);
    }
    for dead in [pids[0], pids[3], pids[1]] {
        fake.server.terminate(dead);
    }
    assert_eq!(pid_of(&fake.connect("db", &params).backend), pids[2]);
}

/// Returns `params` with `parameter` appended.
fn more(params: &StartupParams, parameter: &[u8]) -> StartupParams {
    StartupParams::read(params.version(), [params.parameters(), parameter].concat())
}

#[test]
fn idle_backend_serves_only_clients_with_equal_parameters() {
    let fake = FakeLeases::open(HOUR);
    let (a, b) = (params("a"), params("b"));
    let pid = fake.leave_waiting("db", &a);
    let other = fake.connect("db", &b);
    assert_ne!(pid_of(&other.backend), pid);
    assert_eq!(fake.waiting("db"), [pid]);
    // Parameters also differ if one list is longer, or if the order or the protocol version differs.
    let longer = more(&a, b"options\0-c x=y\0");
    let newer = StartupParams::read(0x0003_0002, a.parameters().to_vec());
    for params in [longer, newer] {
        assert_ne!(pid_of(&fake.connect("db", &params).backend), pid);
    }
    assert_eq!(pid_of(&fake.connect("db", &a).backend), pid);
}

#[test]
fn backend_started_under_other_settings_is_not_reused() {
    let params = params("a");
    for what in ["catalogs", "log", "lost log"] {
        let fake = FakeLeases::open(HOUR);
        let pid = fake.leave_waiting("db", &params);
        match what {
            "catalogs" => fake.server.change_catalogs(),
            "log" => fake.leases.0.evidence.change_settings(POSITION.parse().unwrap()),
            _ => fake.leases.0.evidence.lose(),
        }
        assert_ne!(pid_of(&fake.connect("db", &params).backend), pid, "{what}");
        fake.server.expect_closed(pid);
    }
}

#[test]
fn stamp_of_missing_database_is_empty() {
    let fake = FakeLeases::open(HOUR);
    assert_eq!(
        &*fake.leases.0.read_stamp(&DatabaseAddress::new(5, "db")).unwrap().0,
        &*stamp_of(&vec![vec![Some("as it was".to_owned())]], &fake.leases.0.options.data)
    );
    fake.server.lose_databases();
    assert_eq!(&*fake.leases.0.read_stamp(&DatabaseAddress::new(5, "db")).unwrap().0, "");
}

#[test]
fn backend_with_possible_client_traces_is_closed() {
    let usual = params("a");
    let compiling = more(&usual, b"options\0-c JIT=on\0");
    for (params, functions) in [(&compiling, false), (&usual, true)] {
        let fake = FakeLeases::open(HOUR);
        let Connected { backend, guard } = fake.connect("db", params);
        let id = fake.leases.0.lock().table.database_named("db").unwrap();
        fake.leases.0.lock().pool.copy_mut(id).unwrap().leaves_traces = functions;
        let pid = pid_of(&backend);
        guard.give_back(backend);
        fake.server.expect_closed(pid);
        assert_eq!(fake.sessions("db"), (0, 0));
    }
}

#[test]
fn only_so_many_backends_wait() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let sessions: Vec<_> = (0..70).map(|_| fake.connect("db", &params)).collect();
    for Connected { backend, guard } in sessions {
        guard.give_back(backend);
    }
    assert_eq!((fake.waiting("db").len(), fake.sessions("db")), (64, (0, 0)));
    let waiting: BTreeSet<u32> = fake.waiting("db").into_iter().collect();
    fake.server.wait_until("the end of the others", |backends| {
        backends.iter().filter(|pid| !waiting.contains(pid)).count() == 0
    });
}

#[test]
fn concurrent_clients_never_share_a_backend() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    for _ in 0..20 {
        let barrier = Barrier::new(6);
        let sessions: Vec<Connected> = thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        fake.connect("db", &params)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let pids: BTreeSet<u32> = sessions.iter().map(|session| pid_of(&session.backend)).collect();
        assert_eq!(pids.len(), 6);
        // Give some backends back and close the others.
        for (at, Connected { backend, guard }) in sessions.into_iter().enumerate() {
            if at % 3 > 0 {
                guard.give_back(backend);
            }
        }
        assert_eq!(fake.sessions("db"), (0, 0));
    }
    assert!(fake.counters().0 > 0);
}

#[test]
fn departed_client_is_counted_out_once() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    for moment in ["before", "after", "known", "known twice", "given back"] {
        let link = Arc::new(FakeLink::default());
        if moment == "before" {
            link.go();
        }
        let Connected { backend, guard } = fake.enter("db", &params, Some(link.clone())).expect(moment);
        let another = Arc::new(FakeLink::default());
        let stays = fake.enter("db", &params, Some(another.clone())).expect(moment);
        link.go();
        another.go();
        let pid = pid_of(&backend);
        match moment {
            "known" => guard.leaving(),
            "known twice" => (guard.leaving(), guard.leaving()).0,
            "given back" => {
                guard.leaving();
                guard.give_back(backend);
                assert_eq!(fake.waiting("db"), [pid]);
                assert_eq!(fake.sessions("db"), (1, 1), "{moment}");
                continue;
            }
            _ => {}
        }
        // If the table hasn't noticed yet that both clients have
        // disconnected, it notices when another session is requested.
        drop(fake.connect("db", &params));
        drop((backend, guard));
        fake.server.expect_closed(pid);
        assert_eq!(fake.sessions("db"), (0, 1), "{moment}");
        drop(stays);
        assert_eq!(fake.sessions("db"), (0, 0), "{moment}");
    }
}

#[test]
fn new_client_checks_only_one_existing_client() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let link = Arc::new(FakeLink::default());
    let crowd: Vec<_> = (0..20).map(|_| fake.enter("db", &params, Some(link.clone())).unwrap()).collect();
    let before = link.looks.load(Ordering::Relaxed);
    drop(fake.connect("db", &params));
    assert_eq!(link.looks.load(Ordering::Relaxed), before + 1);
    drop(crowd);
}

#[test]
fn backend_returned_after_lease_end_is_closed() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let Connected { backend, guard } = fake.connect("db", &params);
    let pid = pid_of(&backend);
    thread::scope(|scope| {
        // The client has just disconnected on its own. The release terminates the session and waits for it to end.
        let release = scope.spawn(|| fake.leases.release("db"));
        fake.server.wait_until("the release", |_| fake.server.terminations() > 0);
        guard.give_back(backend);
        release.join().unwrap().unwrap();
    });
    fake.server.expect_closed(pid);
    // The name is free again, and the old backend isn't in the new database.
    assert_ne!(pid_of(&fake.connect("db", &params).backend), pid);
}

#[test]
fn missing_database_is_replaced_silently_at_session_start() {
    let fake = FakeLeases::open(HOUR);
    for gone in 1..ATTEMPTS {
        fake.server.refuse(&vec!["3D000"; gone]);
        // The parameters differ each time, so no waiting backend has them.
        let connected = fake.connect("db", &params(&format!("gone {gone} times")));
        assert!(fake.server.backends().contains(&pid_of(&connected.backend)));
        assert_eq!(fake.sessions("db"), (1, 1));
        drop(connected);
        fake.leases.release("db").unwrap();
    }
}

#[test]
fn session_start_error_is_forwarded_and_session_uncounted() {
    let fake = FakeLeases::open(HOUR);
    let usual = params("a");
    let stays = fake.connect("db", &usual);
    for sqlstate in ["28000", "42501", "22023", "57P03"] {
        fake.server.refuse(&[sqlstate]);
        let error = fake.enter("db", &params(sqlstate), None).unwrap_err();
        let LeaseError::Refused(words) = &error else { panic!("{error:?}") };
        assert!(has_field(words, format!("C{sqlstate}\0").as_bytes()));
        assert_eq!(fake.sessions("db"), (1, 1), "{sqlstate}");
    }
    drop(stays);
    assert_eq!(fake.sessions("db"), (0, 0));
}

#[test]
fn idle_backends_make_room_for_client_session() {
    let fake = FakeLeases::open(HOUR);
    let (a, b) = (params("a"), params("b"));
    let pid = fake.leave_waiting("db", &a);
    fake.server.refuse(&["53300", "53300"]);
    let connected = fake.connect("db", &b);
    assert_eq!(fake.server.refusals(), 0);
    fake.server.expect_closed(pid);
    assert!(fake.waiting("db").is_empty());
    // For a while afterwards, pgfresh retains no idle backends.
    let pid = pid_of(&connected.backend);
    connected.guard.give_back(connected.backend);
    fake.server.expect_closed(pid);
    // If there are no idle backends to close, pgfresh closes its own idle sessions. If that doesn't help either, the
    // client gets the server's error.
    fake.server.refuse(&["53300"; 1000]);
    let error = fake.enter("db", &params("c"), None).unwrap_err();
    assert!(matches!(&error, LeaseError::Refused(words) if has_field(words, b"C53300\0")), "{error:?}");
    assert_eq!(fake.sessions("db"), (0, 0));
}

#[test]
fn idle_backends_make_room_for_admin_session() {
    let fake = FakeLeases::open(HOUR);
    let pid = fake.leave_waiting("db", &params("a"));
    fake.server.refuse(&["53300", "53300"]);
    assert!(fake.leases.0.admin.open_named("db").is_ok());
    assert_eq!(fake.server.refusals(), 0);
    fake.server.expect_closed(pid);
    // A session closed by another thread or a client may take a moment to exit. Meanwhile, the server refuses new ones.
    fake.server.refuse(&["53300", "53300"]);
    assert!(fake.leases.0.admin.open_named("db").is_ok());
    fake.server.refuse(&["53300"; 1000]);
    let error = fake.leases.0.admin.open_named("db").unwrap_err();
    assert_eq!(error.sqlstate(), "53300", "no room comes");
}

#[test]
fn vacating_closes_those_that_wait_and_no_others() {
    let fake = FakeLeases::open(HOUR);
    let params = params("a");
    let used = fake.connect("db", &params);
    let waiting = fake.leave_waiting("db", &params);
    fake.leases.vacate();
    fake.server.expect_closed(waiting);
    assert!(fake.waiting("db").is_empty() && fake.server.backends().contains(&pid_of(&used.backend)));
}

/// Simulates random events. No client may get an error or another client's backend, and no backend may leak.
#[test]
fn no_backend_is_given_twice_and_none_leaks() {
    for seed in 1..=3_u64 {
        let fake = FakeLeases::open(HOUR);
        let (kinds, names) = ([params("a"), params("b"), params("c")], ["one", "two"]);
        let mut open: Vec<Connected> = Vec::new();
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for step in 0..300 {
            let context = format!("seed {seed}, step {step}");
            let name = names[random(2)];
            match random(10) {
                0..4 => open.push(fake.enter(name, &kinds[random(3)], None).expect(&context)),
                4..7 if !open.is_empty() => {
                    let Connected { backend, guard } = open.swap_remove(random(open.len()));
                    guard.leaving();
                    guard.give_back(backend);
                }
                7 if !open.is_empty() => drop(open.swap_remove(random(open.len()))),
                8 => {
                    // Terminate all backends that no client uses, as another session could.
                    let used: BTreeSet<u32> = open.iter().map(|session| pid_of(&session.backend)).collect();
                    let idle: Vec<u32> = fake.server.backends().difference(&used).copied().collect();
                    if !idle.is_empty() && fake.leases.isolation(name).is_some() {
                        let waiting = fake.waiting(name);
                        for pid in idle.into_iter().filter(|pid| waiting.contains(pid)) {
                            fake.server.terminate(pid);
                        }
                    }
                }
                9 if random(4) == 0 => fake.server.change_catalogs(),
                9 if random(4) == 0 => fake.leases.vacate(),
                _ => {}
            }
            let used: Vec<u32> = open.iter().map(|session| pid_of(&session.backend)).collect();
            let distinct: BTreeSet<u32> = used.iter().copied().collect();
            assert_eq!(used.len(), distinct.len(), "{context}: given twice");
            assert!(open.iter().all(|session| sys::is_idle_socket(&session.backend.stream)), "{context}");
            let leased = names.iter().filter(|name| fake.leases.isolation(name).is_some());
            let (counted, clients) = leased
                .map(|name| fake.sessions(name))
                .fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
            assert_eq!((counted, clients), (open.len(), open.len()), "{context}: sessions are miscounted");
        }
        drop(open);
        fake.leases.close();
        fake.server.wait_until("the end of all backends", BTreeSet::is_empty);
    }
}

#[test]
fn reset_wait_is_bounded_with_blocked_maintenance_workers() {
    let fake = FakeLeases::open(Duration::ZERO);
    let params = params("a");
    let _stays = fake.connect("db", &params);
    let others = ["b", "c", "d", "e"].map(|name| fake.connect(name, &params));
    fake.server.stop(true);
    // Let the maintenance workers end these leases.
    drop(others);
    let (answer, answered) = mpsc::channel();
    let leases = fake.leases.clone();
    thread::spawn(move || answer.send(leases.reset("db", false)));
    let answer = answered.recv_timeout(Duration::from_secs(10));
    fake.server.stop(false);
    assert!(matches!(answer, Ok(Err(LeaseError::InUse { .. }))), "{answer:?}");
}
