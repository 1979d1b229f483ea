//! Tests what happens after a panic in the table or in a task.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::runtime::checkout::Access;
use crate::runtime::core::Core;
use crate::runtime::fake::{FakeLeases, params};
use crate::runtime::leases::Leases;
use crate::runtime::resources::{PooledCopy, Resources};
use crate::runtime::shared_core::SharedCore;
use crate::sessions::session::{ConnectRequest, Connected, Entered};
use crate::table::DatabaseId;

/// A timeout longer than anything takes even on a busy machine.
const HANG: Duration = Duration::from_secs(30);

type Step = fn(&Leases) -> Result<(), LeaseError>;

/// Requests of all kinds.
const STEPS: [Step; 9] = [
    |leases| visit(leases, "db", Isolation::Clone),
    |leases| visit(leases, "db", Isolation::Clone),
    |leases| visit(leases, "rolled back", Isolation::Rollback),
    |leases| leases.lease(Isolation::Clone, Some("held"), None).map(drop),
    |leases| leases.reset("held", true),
    |leases| leases.snapshot("held", "copy", true),
    |leases| leases.keep("held", None).and_then(|kept| kept.map_or(Ok(()), |name| leases.release(&name))),
    |leases| leases.remove_template("copy"),
    |leases| {
        leases.lease(Isolation::Clone, Some("brief"), None)?;
        leases.release("brief")
    },
];

/// Opens a session and closes it.
fn visit(leases: &Leases, name: &str, isolation: Isolation) -> Result<(), LeaseError> {
    let params = params("a");
    let request = ConnectRequest { isolation: Some(isolation), ..ConnectRequest::new(name, &params) };
    match leases.connect(&request)? {
        Entered::Plain(Connected { backend, guard }) => guard.give_back(backend),
        Entered::Transaction(mut guard) => {
            let (stream, _, transaction) = guard.lend().expect("the session has begun");
            guard.leave(stream, transaction);
        }
    }
    Ok(())
}

/// Checks that the leases refuse all requests and hold no resources.
fn expect_failed(fake: &FakeLeases, context: &str) {
    for step in STEPS.iter().take(4) {
        let error = step(&fake.leases).expect_err(context);
        assert!(matches!(error, LeaseError::Failed), "{context}: {error:?}");
        assert_eq!(error.sqlstate(), "57P01");
    }
    assert!(fake.leases.status().leases.is_empty(), "{context}");
    fake.leases.close();
    fake.server.wait_until(context, BTreeSet::is_empty);
}

#[test]
fn panic_at_any_action_hands_out_no_database() {
    for actions in 0.. {
        let context = format!("panic after {actions} actions");
        let fake = FakeLeases::open(Duration::ZERO);
        let (failure, failed) = mpsc::channel();
        fake.leases.when_failed(move || failure.send(()).expect("the test waits"));
        fake.leases.plant_panic(actions);
        for step in STEPS {
            // When a session ends, there is no caller to receive the error after a panic.
            let result = catch_unwind(AssertUnwindSafe(|| step(&fake.leases)));
            let has_failed = fake.leases.0.lock().has_failed;
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => assert!(has_failed, "{context}: {error:?}"),
                Err(_) => assert!(has_failed, "{context}"),
            }
        }
        if !fake.leases.0.lock().has_failed {
            assert!(actions > 20, "only {actions} actions had a panic");
            return;
        }
        expect_failed(&fake, &context);
        assert_eq!((failed.recv(), failed.recv().is_err()), (Ok(()), true), "{context}");
    }
}

#[test]
fn failed_table_refuses_clients_that_wait() {
    let fake = FakeLeases::open(Duration::ZERO);
    // The very first client waits until pgfresh has read the state shared by all databases. Get that out of the way.
    visit(&fake.leases, "first", Isolation::Clone).unwrap();
    // From now on, no task finishes, so all clients wait for the table.
    fake.server.stop(true);
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let leases = fake.leases.clone();
            thread::spawn(move || visit(&leases, "db", Isolation::Clone))
        })
        .collect();
    let end = Instant::now() + HANG;
    while fake.leases.0.lock().slots.len() < clients.len() && Instant::now() < end {
        thread::yield_now();
    }
    fake.leases.plant_panic(0);
    let error = fake.leases.release("other").unwrap_err();
    fake.server.stop(false);
    assert!(matches!(error, LeaseError::Failed), "{error:?}");
    for client in clients {
        let result = client.join().unwrap();
        assert!(matches!(result, Err(LeaseError::Failed)), "{result:?}");
    }
    expect_failed(&fake, "clients waited");
}

#[test]
fn panic_in_task_retires_its_database() {
    let (id, core) = (DatabaseId(1), SharedCore::new(Core::new(1)));
    core.lock().pool.insert(id, Resources::Clone(Box::new(PooledCopy::fake())));
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let Some(Access::Exclusive(_database)) = core.check_out(id) else { return };
        assert!(core.lock().pool.get(id).is_none(), "another task could use it");
        panic!("the test plants this panic");
    }));
    assert!(panics.is_err());
    let mut core = core.lock();
    assert!(!core.has_failed && core.admit(id).is_none());
    assert!(matches!(core.pool.get(id), Some(Resources::Retired(_))));
}
