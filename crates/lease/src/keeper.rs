//! The background: fills the pool, ends leases, recycles or drops what is left of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Standing, Waiting};
use crate::databases::Inner;
use crate::recycle::{Baseline, recycle};
use crate::rest::Rest;
use crate::shape::Shape;
use crate::state::{Job, Ready};
use crate::template::{Template, drop_database, rename};
use crate::{Backend, LeaseError, Difference, Digest, leaks};

/// How long to wait after a failure before the same is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Works until the databases are closed.
pub(crate) fn keep(inner: &Arc<Inner>) {
    while let Some(job) = next(inner) {
        let result = match &job {
            Job::Fill(template) => fill(inner, template),
            Job::End(name) => end(inner, name),
            Job::Drop(name) => drop_database(name, &inner.clerks),
            Job::Fork => fork(inner),
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

/// Has a process ready that becomes a backend of whatever kind, with whatever database.
fn fork(inner: &Inner) -> Result<(), LeaseError> {
    let stream = Backend::knock(&inner.origin.directory)?;
    inner.lock().forked.push(stream);
    Ok(())
}

/// Makes a copy ready, and sessions in it of the kinds that clients want.
fn fill(inner: &Inner, template: &str) -> Result<(), LeaseError> {
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

fn make(inner: &Inner, template: &str, name: &str) -> Result<Ready, LeaseError> {
    let begun = Instant::now();
    let source = inner.template(Some(template))?;
    let oid = source.copy(name, inner.origin.major, &inner.clerks)?;
    if source.is_recyclable(inner.origin.major) && source.shape.get().is_none() {
        let attributes = Rest::read(oid, &inner.clerks)?.attributes;
        let shape = Shape::read(&mut inner.clerks.open(name)?, attributes, inner.origin.paranoid);
        let _ = source
            .shape
            .set(shape.map_err(|source| LeaseError::Sql { verb: "read a template's shape", source })?);
    }
    let mut ready = Ready {
        template: template.to_owned(),
        oid,
        database: name.to_owned(),
        warm: Vec::new(),
        baseline: Baseline::default(),
    };
    if let Ok(standing) = inner.standing(oid) {
        warm_up(inner, &source, &mut ready, &standing);
    }
    let mut state = inner.lock();
    state.created.0 += 1;
    state.created.1 += begun.elapsed();
    Ok(ready)
}

/// Opens sessions of the kinds that clients came with last, where there is none yet. One that does not succeed (a role
/// that may not connect) is the client's to hear of.
/// `standing` is the database's, as it was before.
fn warm_up(inner: &Inner, template: &Template, ready: &mut Ready, standing: &Standing) {
    let kinds = {
        let state = inner.lock();
        if state.has_room() { state.kinds.clone() } else { Vec::new() }
    };
    let tables = template.shape.get().map_or_else(Vec::new, Shape::names);
    for kind in kinds {
        if ready.warm.iter().any(|waits| waits.kind == kind) {
            continue;
        }
        let backend = Backend::connect(&inner.origin.directory, &kind, &ready.database);
        if let Some(backend) = backend.ok().and_then(|backend| backend.practised(&tables)) {
            ready.warm.push(Waiting { kind, backend, standing: Arc::clone(standing) });
        }
    }
}

/// Takes a lease's database away from its name, and makes it ready again, or else drops it.
pub(crate) fn end(inner: &Inner, name: &str) -> Result<(), LeaseError> {
    let begun = Instant::now();
    let (mut used, template) = {
        let mut state = inner.lock();
        let database = state.next_name("ready");
        let Some(lease) = state.leases.get_mut(name) else { return Ok(()) };
        let template = lease.template.clone();
        (
            Ready {
                template: template.clone(),
                oid: lease.oid,
                database,
                warm: std::mem::take(&mut lease.left),
                baseline: std::mem::take(&mut lease.baseline),
            },
            inner.template(Some(&template)),
        )
    };
    let renamed = rename(used.oid, &used.database, &inner.clerks);
    inner.lock().leases.remove(name);
    inner.notify();
    let standing = match renamed {
        // Whoever has dropped it by SQL has saved us the work.
        Err(LeaseError::NotLeased(_)) => return Ok(()),
        other => other?,
    };
    look_for_leaks(inner)?;
    let result = match template {
        Ok(template) => {
            let renewed = renew(inner, &template, &mut used, name);
            if renewed.is_ok() && inner.lock().has_time_for(&used) {
                warm_up(inner, &template, &mut used, &standing);
            }
            renewed
        }
        Err(_) => Err("its template was removed"),
    };
    let mut state = inner.lock();
    match result {
        Ok(()) if state.wants_more(&used.template) => {
            state.recycled.0 += 1;
            state.recycled.1 += begun.elapsed();
            state.ready.push(used);
        }
        Ok(()) => state.to_drop.push_back(used.database),
        Err(reason) => {
            *state.dropped.entry(reason).or_default() += 1;
            state.to_drop.push_back(used.database);
        }
    }
    drop(state);
    inner.notify();
    Ok(())
}

/// Whether whoever had a database has changed something that all share.
fn look_for_leaks(inner: &Inner) -> Result<(), LeaseError> {
    let facts = leaks::facts(&inner.clerks)?;
    let mut state = inner.lock();
    let leased: Vec<_> = state.leases.keys().cloned().collect();
    state.watch.compare(facts, leased.into_iter());
    Ok(())
}

/// Makes a used database fresh again, or says why not. `name` is what its holder knew it as.
pub(crate) fn renew(
    inner: &Inner,
    template: &Template,
    used: &mut Ready,
    name: &str,
) -> Result<(), &'static str> {
    let left = std::mem::take(&mut used.warm);
    if !template.is_recyclable(inner.origin.major) {
        return Err("databases of this template or version are not recycled");
    }
    let shape = template.shape.get().ok_or("its template's shape was not known yet")?;
    let recycled = recycle(&inner.clerks, &used.database, used.oid, shape, &used.baseline, left);
    let (baseline, warm) = recycled.map_err(|doubt| doubt.0)?;
    (used.baseline, used.warm) = (baseline, warm);
    match &shape.digest {
        Some(digest) => compare(inner, digest, used, name),
        None => Ok(()),
    }
}

/// Reads a recycled database from end to end, and keeps what differs from its template's.
fn compare(inner: &Inner, fresh: &Digest, used: &Ready, name: &str) -> Result<(), &'static str> {
    let unread = |_| "it could not be compared with its template";
    let mut session =
        inner.clerks.open(&used.database).map_err(|_| "it could not be compared with its template")?;
    let digest = Digest::read(&mut session).map_err(unread)?;
    let Some(relation) = fresh.difference(&digest) else { return Ok(()) };
    let difference = Difference { database: name.to_owned(), relation: relation.to_owned() };
    inner.lock().differences.push(difference);
    Err("it differed from its template")
}
