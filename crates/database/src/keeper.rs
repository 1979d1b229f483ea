//! The background: fills the pool, ends leases, drops what is left of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::databases::Inner;
use crate::state::{Job, Ready};
use crate::template::{drop_database, rename};
use crate::{Backend, DatabaseError};

/// How long to wait after a failure before the same is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Works until the databases are closed.
pub(crate) fn keep(inner: &Arc<Inner>) {
    while let Some(job) = next(inner) {
        let result = match &job {
            Job::Fill(template) => fill(inner, template),
            Job::End(name) => end(inner, name),
            Job::Drop(name) => drop_database(name, &inner.clerks),
        };
        if result.is_err() {
            // The server is on its way out, or the template is in use (template1): not a reason to spin.
            let state = inner.lock();
            drop(inner.wait(state, Some(PAUSE)));
        }
    }
}

fn next(inner: &Inner) -> Option<Job> {
    let mut state = inner.lock();
    loop {
        if state.closed {
            return None;
        }
        let room = inner.most().saturating_sub(state.count());
        match state.next_job(room) {
            Ok(job) => return Some(job),
            Err(patience) => state = inner.wait(state, patience),
        }
    }
}

/// Makes a copy ready, and sessions in it of the kinds that clients want.
fn fill(inner: &Inner, template: &str) -> Result<(), DatabaseError> {
    let name = inner.lock().next_name("ready");
    let result = make(inner, template, &name);
    let mut state = inner.lock();
    state.made(template);
    let ready = result?;
    if state.closed {
        return Ok(());
    }
    state.ready.push(ready);
    drop(state);
    inner.notify();
    Ok(())
}

fn make(inner: &Inner, template: &str, name: &str) -> Result<Ready, DatabaseError> {
    let begun = Instant::now();
    let source = inner.template(Some(template))?;
    let oid = source.copy(name, inner.origin.major, &inner.clerks)?;
    let mut ready = Ready { template: template.to_owned(), oid, database: name.to_owned(), warm: Vec::new() };
    warm_up(inner, &mut ready);
    let mut state = inner.lock();
    state.created.0 += 1;
    state.created.1 += begun.elapsed();
    Ok(ready)
}

/// Opens sessions of the kinds that clients came with last, where there is none yet. One that does not succeed (a role
/// that may not connect) is the client's to hear of.
fn warm_up(inner: &Inner, ready: &mut Ready) {
    let kinds = inner.lock().kinds.clone();
    for kind in kinds {
        if ready.warm.iter().any(|(warm, _)| *warm == kind) {
            continue;
        }
        if let Ok(backend) = Backend::connect(&inner.origin.directory, &kind, &ready.database) {
            ready.warm.push((kind, backend));
        }
    }
}

/// Takes a lease's database away from its name, and drops it.
pub(crate) fn end(inner: &Inner, name: &str) -> Result<(), DatabaseError> {
    let (oid, old) = {
        let mut state = inner.lock();
        let old = state.next_name("old");
        let Some(lease) = state.leases.get_mut(name) else { return Ok(()) };
        lease.left.clear();
        (lease.oid, old)
    };
    let renamed = rename(oid, &old, &inner.clerks);
    let mut state = inner.lock();
    state.leases.remove(name);
    // Whoever has dropped it by SQL has saved us the work.
    if renamed.is_ok() {
        state.to_drop.push_back(old);
    }
    drop(state);
    inner.notify();
    match renamed {
        Err(DatabaseError::NotLeased(_)) => Ok(()),
        other => other,
    }
}
