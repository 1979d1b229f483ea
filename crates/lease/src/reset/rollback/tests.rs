//! Tests how clients of a lease in rollback isolation take turns using its session.

use std::sync::Arc;
use std::thread;

use super::*;
use crate::backends::client::ClientLink;
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::runtime::fake::{FakeLeases, params};
use crate::runtime::resources::Resources;
use crate::sessions::session::{ConnectRequest, Entered, TransactionGuard};

const HOUR: Duration = Duration::from_hours(1);

/// A client that has disconnected.
#[derive(Debug)]
struct Gone;

impl ClientLink for Gone {
    fn is_gone(&self) -> bool {
        true
    }

    fn close(&self) {}
}

/// A session that a client has borrowed, with its guard and transaction.
struct Lent {
    guard: TransactionGuard,
    pid: u32,
    stream: UnixStream,
    transaction: LeaseTransaction,
}

impl Lent {
    /// Returns the session after its transaction has begun.
    fn leave(self, savepoint: Savepoint) {
        let transaction = LeaseTransaction { begun: true, savepoint, ..self.transaction };
        self.guard.leaving();
        self.guard.leave(self.stream, transaction);
    }
}

fn enter(
    fake: &FakeLeases,
    name: &str,
    params: &StartupParams,
    client: Option<Arc<dyn ClientLink>>,
) -> Result<TransactionGuard, LeaseError> {
    let isolation = Some(Isolation::Rollback);
    let request = ConnectRequest { isolation, client, ..ConnectRequest::new(name, params) };
    match fake.leases.connect(&request)? {
        Entered::Transaction(guard) => Ok(guard),
        other @ Entered::Plain(_) => panic!("a session in a transaction was expected: {other:?}"),
    }
}

fn lend(fake: &FakeLeases, name: &str) -> Lent {
    let mut guard = enter(fake, name, &params("a"), None).unwrap();
    let (stream, startup_response, transaction) = guard.lend().expect("it is there");
    let key = pgwire::cancel_key(&startup_response).unwrap();
    let pid = u32::from_be_bytes(startup_response[key.start..key.start + 4].try_into().unwrap());
    Lent { guard, pid, stream, transaction }
}

/// Returns the number of sessions in the lease and whether the lease currently holds its own session.
fn state(fake: &FakeLeases, name: &str) -> (usize, bool) {
    let core = fake.leases.0.lock();
    let lease = core.table.lease(name).unwrap();
    let has_session = match core.pool.get(lease.database.unwrap()) {
        Some(Resources::Rollback(rollback)) => rollback.session.is_some(),
        _ => false,
    };
    (lease.sessions, has_session)
}

#[test]
fn rollback_session_passes_to_next_client_clean() {
    let fake = FakeLeases::open(HOUR);
    let discard = DISCARD_ALL.join("; ");
    let first = lend(&fake, "db");
    let pid = first.pid;
    assert!(!first.transaction.begun);
    assert_eq!(state(&fake, "db"), (1, false));
    fake.server.asked(pid);
    // A client that has sent no statements leaves nothing to discard.
    let transaction = first.transaction.clone();
    first.guard.leave(first.stream, transaction);
    assert_eq!((fake.server.asked(pid), state(&fake, "db")), (Vec::new(), (0, true)));
    for (savepoint, undo) in [
        (Savepoint::Gone, ""),
        (Savepoint::Open, "ROLLBACK TO SAVEPOINT pgfresh_t; RELEASE SAVEPOINT pgfresh_t; "),
        (Savepoint::Done, "RELEASE SAVEPOINT pgfresh_t; "),
        (Savepoint::Gone, ""),
    ] {
        let next = lend(&fake, "db");
        assert_eq!((next.pid, state(&fake, "db")), (pid, (1, false)));
        assert!(fake.server.asked(pid).is_empty(), "it costs a client nothing");
        next.leave(savepoint);
        assert_eq!(fake.server.asked(pid), [format!("{undo}{discard}")]);
        assert_eq!(state(&fake, "db"), (0, true));
    }
    assert!(lend(&fake, "db").transaction.begun, "the lease's transaction goes on");
}

/// Ending a lease undoes everything, so pgfresh skips the cleanup after the last client.
#[test]
fn lease_ending_with_session_rolls_back_once() {
    for (linger, queries) in [(Duration::ZERO, 1), (HOUR, 2)] {
        let fake = FakeLeases::open(linger);
        let lent = lend(&fake, "db");
        let pid = lent.pid;
        fake.server.asked(pid);
        lent.leave(Savepoint::Open);
        if !linger.is_zero() {
            fake.leases.release("db").unwrap();
        }
        let asked = fake.server.asked(pid);
        assert_eq!(asked.len(), queries, "{asked:?}");
        assert!(
            asked[queries - 1].starts_with("ROLLBACK TO SAVEPOINT pgfresh_lease; ROLLBACK; CLOSE ALL; "),
            "{asked:?}"
        );
    }
}

#[test]
fn transaction_state_passes_to_clients_until_lease_ends() {
    let constraints = Constraints {
        seen: Some("0".to_owned()),
        deferrable: "a.b".to_owned(),
        deferred: "a.b".to_owned(),
        sources: vec![("f".to_owned(), "SET LOCAL a.b = 1".to_owned())],
        set_by_client: true,
    };
    let changed = Constraints { seen: Some("1".to_owned()), ..constraints.clone() };
    let known = Constraints { set_by_client: false, ..constraints.clone() };
    for (constraints, of_next_lease) in [(constraints, known), (changed, Constraints::default())] {
        let fake = FakeLeases::open(HOUR);
        let Lent { guard, stream, .. } = lend(&fake, "db");
        let transaction = LeaseTransaction {
            begun: true,
            leaves_nothing: false,
            constraints,
            ..LeaseTransaction::default()
        };
        guard.leave(stream, transaction.clone());
        let next = lend(&fake, "db").transaction;
        assert_eq!(
            (next.begun, next.leaves_nothing, &next.constraints),
            (true, false, &transaction.constraints)
        );
        let next = transaction.of_next_lease();
        assert_eq!((next.begun, next.leaves_nothing, next.constraints), (false, true, of_next_lease));
    }
}

#[test]
fn transaction_timeout_is_disabled_for_each_client() {
    // Servers before PostgreSQL 17 return an empty value.
    for (value, set) in [("", ""), ("0", ""), ("1min", "SET LOCAL transaction_timeout = 0")] {
        let fake = FakeLeases::open(HOUR);
        fake.server.set_timeout(value);
        let lent = lend(&fake, "db");
        let pid = lent.pid;
        let begin = format!("{}; {set}; {}", BEGIN_LEASE[0], BEGIN_LEASE[1]);
        let asked = fake.server.asked(pid);
        assert_eq!(asked.contains(&begin), !set.is_empty(), "{asked:?}");
        assert_eq!(lent.transaction.begun, !set.is_empty());
        assert_eq!(lent.transaction.timeout, if set.is_empty() { "" } else { value });
        lent.leave(Savepoint::Gone);
        let [asked] = &fake.server.asked(pid)[..] else { panic!("one query") };
        assert!(asked.ends_with(set), "{asked}");
        // The transaction begins once per lease, not once per client.
        assert!(lend(&fake, "db").transaction.begun && fake.server.asked(pid).is_empty());
    }
}

#[test]
fn incompletely_returned_session_ends_with_its_lease() {
    for how in ["dropped", "not lent", "terminated", "ended without a word", "refused"] {
        let fake = FakeLeases::open(HOUR);
        let lent = lend(&fake, "db");
        let pid = lent.pid;
        match how {
            "dropped" => drop((lent.guard, lent.stream)),
            "not lent" => {
                lent.leave(Savepoint::Gone);
                drop(enter(&fake, "db", &params("a"), None).unwrap());
            }
            "terminated" => {
                fake.server.terminate(pid);
                lent.leave(Savepoint::Gone);
            }
            "ended without a word" => {
                fake.server.send(pid, b"", true);
                lent.leave(Savepoint::Gone);
            }
            _ => {
                fake.server.fail_on("UNLISTEN");
                lent.leave(Savepoint::Gone);
            }
        }
        fake.server.wait_until(how, |backends| !backends.contains(&pid));
        let next = lend(&fake, "db");
        assert_ne!(next.pid, pid, "{how}");
        assert!(!next.transaction.begun, "{how}");
    }
}

#[test]
fn session_ending_between_clients_is_not_lent() {
    let fake = FakeLeases::open(HOUR);
    fake.server.set_timeout("5s");
    let Lent { guard, pid, stream, .. } = lend(&fake, "db");
    guard.leave(stream, LeaseTransaction::default());
    fake.server.terminate(pid);
    // The statement that begins the transaction fails, which ends the lease. The next client gets a new session.
    let mut guard = enter(&fake, "db", &params("a"), None).unwrap();
    assert!(guard.lend().is_none());
    drop(guard);
    assert_ne!(lend(&fake, "db").pid, pid);
}

#[test]
fn session_is_exclusive_and_bound_to_startup_parameters() {
    let fake = FakeLeases::open(HOUR);
    let first = lend(&fake, "db");
    let pid = first.pid;
    thread::scope(|scope| {
        let next = scope.spawn(|| lend(&fake, "db").pid);
        // Meanwhile, a lease with another name has a different session.
        assert_ne!(lend(&fake, "other").pid, pid);
        fake.server.wait_until("the next client", |_| !fake.leases.0.lock().slots.is_empty());
        assert!(!next.is_finished());
        first.leave(Savepoint::Open);
        assert_eq!(next.join().unwrap(), pid);
    });
    let again = lend(&fake, "db");
    let pid = again.pid;
    again.leave(Savepoint::Gone);
    let error = enter(&fake, "db", &params("b"), None).unwrap_err();
    assert!(matches!(error, LeaseError::OtherParameters(_)), "{error:?}");
    assert_eq!((lend(&fake, "db").pid, fake.server.backends().contains(&pid)), (pid, true));
}

#[test]
fn leaving_client_is_counted_once_and_awaited() {
    let fake = FakeLeases::open(HOUR);
    let mut guard = enter(&fake, "db", &params("a"), Some(Arc::new(Gone))).unwrap();
    let (stream, _, transaction) = guard.lend().unwrap();
    guard.leaving();
    guard.leaving();
    thread::scope(|scope| {
        let next = scope.spawn(|| lend(&fake, "db"));
        assert!(!next.is_finished());
        guard.leave(stream, transaction);
        let next = next.join().unwrap();
        assert_eq!(state(&fake, "db"), (1, false));
        next.leave(Savepoint::Gone);
    });
    assert_eq!(state(&fake, "db"), (0, true));
}
