//! Recycling: undoing just what the server's own statistics say was touched, and proving that this was all.
//!
//! The database's counters of inserted, updated and deleted rows are the sum over all its relations. What the user's
//! tables do not account for happened in a catalog: then the database is not recycled, unless it was a TRUNCATE, which
//! changes nothing in `pg_class` but files. Sequences are known by the blocks that were read of them.
//!
//! Statistics count what was tried, committed or not, and they are complete: a backend that has ended, or was told to,
//! has delivered its own. Source: `src/backend/utils/activity/pgstat_relation.c`, from version 15. They are never set
//! to zero here, but compared with those of the last time: what autovacuum does meanwhile cannot be lost that way.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::{Rows, Session, SessionError};

use crate::backend::{Standing, Waiting};
use crate::rest::Rest;
use crate::shape::{self, CLASSES, FILES, Seed, Sequence, Shape, number, text};
use crate::sql::{Clerks, literal};
use crate::{Backend, LeaseError, Kind};

/// How long a session that was just closed may take to be gone.
const STRAGGLERS: Duration = Duration::from_millis(200);
/// A table that grew beyond this is truncated, not emptied row by row; one that cannot be is a reason to drop.
const BLOAT: u64 = 1 << 20;
/// How long a statement may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Delivers a session's counts where others see them, once this statement is over.
const DELIVER: &str = "SELECT pg_catalog.pg_stat_force_next_flush()";

/// What was true of a database when it was last known to be fresh; of a new copy, nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Baseline {
    seen: Seen,
    /// Counters of the catalogs but for updates of `pg_class`.
    others: String,
    /// Files by oid, if others than the template's.
    files: Option<Arc<HashMap<u32, u32>>>,
}

/// What the statistics say.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// When somebody set the counters to zero. We never do.
    reset: Option<String>,
    /// Rows of catalogs changed, in any way.
    catalogs: i64,
    /// Rows changed by table, toast included, and blocks read by sequence, where not zero.
    counts: HashMap<u32, i64>,
    /// Bytes on disk of the main files of those tables.
    sizes: HashMap<u32, u64>,
}

/// Why a database was not recycled, for people and counters.
#[derive(Debug)]
pub(crate) struct Doubt(pub(crate) &'static str);

impl From<SessionError> for Doubt {
    fn from(_: SessionError) -> Self {
        Self("a statement of the reset failed")
    }
}

impl From<LeaseError> for Doubt {
    fn from(_: LeaseError) -> Self {
        Self("a statement of the reset failed")
    }
}

/// What was touched since a baseline.
#[derive(Debug)]
struct Touched {
    tables: Vec<u32>,
    sequences: Vec<u32>,
    catalogs: bool,
}

/// Returns the database to its template's state. `left` are sessions that its last holder has left; those that come
/// back are fit for the next.
pub(crate) fn recycle(
    clerks: &Clerks,
    database: &str,
    oid: u32,
    shape: &Shape,
    baseline: &Baseline,
    left: Vec<Waiting>,
) -> Result<(Baseline, Vec<Waiting>), Doubt> {
    let mut crew = Crew::gather(clerks, database, left)?;
    let count = crew.count();
    let janitor = crew.janitor();
    let mut rest = wait_for_stragglers(clerks, oid, count)?;
    if rest.prepared {
        roll_back_prepared(janitor)?;
        janitor.query(DELIVER)?;
        rest = Rest::read(oid, clerks)?;
    }
    let before = look(janitor, rest, shape, baseline)?;
    let touched = before.since(&baseline.seen, shape);
    if !touched.catalogs && touched.tables.is_empty() && touched.sequences.is_empty() {
        return Ok((baseline.clone(), crew.dismiss()?));
    }
    let truncated = clean(janitor, shape, baseline, &before, touched)?;
    let seen = look(janitor, Rest::read(oid, clerks)?, shape, baseline)?;
    if truncated {
        prove_only_classes(janitor, baseline)?;
    } else if seen.catalogs != before.catalogs {
        return Err(Doubt("its definitions were changed meanwhile"));
    }
    let mut fresh = Baseline { seen, others: baseline.others.clone(), files: baseline.files.clone() };
    if fresh.seen.catalogs != baseline.seen.catalogs {
        fresh.files = Some(Arc::new(shape::files(&ask(janitor, FILES)?)));
    }
    Ok((fresh, crew.dismiss()?))
}

impl Seen {
    fn since(&self, before: &Self, shape: &Shape) -> Touched {
        let moved = |oid: &u32| self.counts.get(oid) != before.counts.get(oid);
        Touched {
            tables: shape.tables.keys().copied().filter(moved).collect(),
            sequences: shape.sequences.keys().copied().filter(moved).collect(),
            catalogs: self.catalogs != before.catalogs,
        }
    }
}

/// The sessions in a database at the end of its lease: those that were left, as good as new, and one of ours.
struct Crew {
    sessions: Vec<(Kind, Standing, Session, Vec<u8>)>,
    /// Where no left session is a superuser's.
    own: Option<Session>,
}

impl Crew {
    fn gather(clerks: &Clerks, database: &str, left: Vec<Waiting>) -> Result<Self, Doubt> {
        let mut crew = Self { sessions: Vec::with_capacity(left.len()), own: None };
        let mut superuser = None;
        for Waiting { kind, backend, standing } in left {
            // One that has ended, or was told to, has delivered its counts, and is nobody's any more.
            let Ok((session, is_superuser)) = tidy(backend.stream) else { continue };
            if is_superuser {
                superuser = Some(crew.sessions.len());
            }
            crew.sessions.push((kind, standing, session, backend.greeting));
        }
        if let Some(at) = superuser {
            crew.sessions.swap(0, at);
        } else {
            let session = clerks.open(database);
            crew.own = Some(session.map_err(|_| Doubt("no session could be opened"))?);
        }
        Ok(crew)
    }

    fn count(&self) -> usize {
        self.sessions.len() + usize::from(self.own.is_some())
    }

    fn janitor(&mut self) -> &mut Session {
        match &mut self.own {
            Some(own) => own,
            None => &mut self.sessions[0].2,
        }
    }

    /// The left sessions, for the next holder.
    fn dismiss(self) -> Result<Vec<Waiting>, Doubt> {
        let released = self.sessions.into_iter().map(|(kind, standing, session, greeting)| {
            let backend = Backend { stream: session.release()?, greeting };
            Ok(Waiting { kind, backend, standing })
        });
        released.collect()
    }
}

/// Takes a left session over as good as new, its counts where others see them. Returns whether it is a superuser's.
fn tidy(stream: UnixStream) -> Result<(Session, bool), SessionError> {
    let mut session = Session::adopt(stream, PATIENCE)?;
    let rows = session.queries(&[
        "DISCARD ALL",
        "SELECT pg_catalog.current_setting('is_superuser'), pg_catalog.pg_stat_force_next_flush()",
    ])?;
    let is_superuser = text(&rows) == "on";
    Ok((session, is_superuser))
}

/// Runs `sql` with the system's own functions, whatever the database or the role has for a search path.
fn ask(janitor: &mut Session, sql: &str) -> Result<Rows, SessionError> {
    janitor.query(&format!("SET LOCAL search_path = pg_catalog; {sql}"))
}

/// Waits until nobody else is in the database.
fn wait_for_stragglers(clerks: &Clerks, oid: u32, ours: usize) -> Result<Rest, Doubt> {
    let begun = Instant::now();
    loop {
        let rest = Rest::read(oid, clerks)?;
        if rest.sessions <= ours {
            return Ok(rest);
        }
        if begun.elapsed() > STRAGGLERS {
            return Err(Doubt("a session did not end"));
        }
        // The server tells nobody of the end of a session.
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Rolls back what was prepared and left: its locks would outlive the lease, and the database could not be dropped.
pub(crate) fn roll_back_prepared(janitor: &mut Session) -> Result<(), SessionError> {
    let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    for row in ask(janitor, sql)? {
        let gid = row.into_iter().next().flatten().unwrap_or_default();
        janitor.query(&format!("ROLLBACK PREPARED {}", literal(&gid)))?;
    }
    Ok(())
}

/// Reads the statistics of each relation, and makes sure of what must not have changed since `baseline`. `rest` was read
/// when nobody else was in the database any more.
fn look(janitor: &mut Session, rest: Rest, shape: &Shape, baseline: &Baseline) -> Result<Seen, Doubt> {
    if rest.reset != baseline.seen.reset {
        return Err(Doubt("its statistics were reset"));
    }
    if rest.attributes != shape.attributes {
        return Err(Doubt("its settings, owner or grants were changed"));
    }
    let mut seen = Seen { reset: rest.reset, catalogs: rest.changed, ..Seen::default() };
    for row in ask(janitor, &shape.look)? {
        let value = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        let (oid, count) = (number(value(0)), value(1).parse::<i64>().unwrap_or(-1));
        if !shape.sequences.contains_key(&oid) {
            seen.catalogs -= count;
            seen.sizes.insert(oid, value(2).parse().unwrap_or(0));
        }
        seen.counts.insert(oid, count);
    }
    Ok(seen)
}

/// Undoes what was touched, in one transaction. Returns whether a table got a new file.
fn clean(
    janitor: &mut Session,
    shape: &Shape,
    baseline: &Baseline,
    seen: &Seen,
    mut touched: Touched,
) -> Result<bool, Doubt> {
    if !touched.catalogs {
        let sequences: Vec<_> = touched.sequences.iter().filter_map(|oid| shape.sequences.get(oid)).collect();
        return empty(janitor, shape, seen, &touched.tables, &sequences);
    }
    if text(&ask(janitor, CLASSES)?) != shape.classes {
        return Err(Doubt("its definitions were changed"));
    }
    prove_only_classes(janitor, baseline)?;
    let before = baseline.files.as_deref().unwrap_or(&shape.files);
    let now = shape::files(&ask(janitor, FILES)?);
    let rewritten = |oid: &u32| before.get(oid) != now.get(oid);
    touched.tables.extend(shape.tables.keys().copied().filter(rewritten));
    touched.tables.sort_unstable();
    touched.tables.dedup();
    // RESTART IDENTITY gives a sequence a new file, of which nothing may have been read yet.
    let sequences: Vec<_> = shape.sequences.values().collect();
    empty(janitor, shape, seen, &touched.tables, &sequences)
}

/// Makes sure that of all catalogs only `pg_class` has changed, and only by updates.
fn prove_only_classes(janitor: &mut Session, baseline: &Baseline) -> Result<(), Doubt> {
    let rows = ask(
        janitor,
        "SELECT string_agg(oid || ':' || n || ':' || u, ',' ORDER BY oid) FROM \
         (SELECT oid, pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_deleted(oid) AS n, \
          CASE oid WHEN 'pg_class'::regclass THEN 0 ELSE pg_stat_get_tuples_updated(oid) END AS u \
          FROM pg_class WHERE relkind IN ('r', 't') AND NOT relisshared AND oid < 16384) c WHERE n <> 0 OR u <> 0",
    )?;
    if text(&rows) == baseline.others { Ok(()) } else { Err(Doubt("its definitions were changed")) }
}

/// Empties the touched tables, puts the template's rows back, sets the sequences back, and delivers the counts of all
/// that: it is not the next holder's. Returns whether a table got a new file.
fn empty(
    janitor: &mut Session,
    shape: &Shape,
    seen: &Seen,
    tables: &[u32],
    sequences: &[&Sequence],
) -> Result<bool, Doubt> {
    // No trigger and no foreign key acts on what we do: each table is put right by itself.
    let mut sql =
        String::from("BEGIN; SET LOCAL session_replication_role = replica; SET LOCAL lock_timeout = '5s'; ");
    let mut truncates = false;
    let mut seeded = Vec::new();
    for oid in tables {
        let Some(table) = shape.tables.get(oid) else { continue };
        match &table.rows {
            Seed::Fixed(why) => return Err(Doubt(why)),
            Seed::Rows(rows) => seeded.push((table, rows)),
            Seed::Empty => {}
        }
        let grown = seen.sizes.get(oid).is_some_and(|size| *size > BLOAT);
        if grown && table.referenced {
            return Err(Doubt("a table grew beyond 1 MB that others refer to"));
        }
        truncates |= grown;
        let _ = if grown {
            write!(sql, "TRUNCATE ONLY {}; ", table.name)
        } else {
            write!(sql, "DELETE FROM ONLY {}; ", table.name)
        };
    }
    for sequence in sequences {
        let Sequence { name, last_value, is_called } = sequence;
        let _ = write!(sql, "SELECT pg_catalog.setval({}, {last_value}, {is_called}); ", literal(name));
    }
    if seeded.is_empty() {
        janitor.query(&format!("{sql}COMMIT; {DELIVER}"))?;
        return Ok(truncates);
    }
    janitor.query(&sql)?;
    for (table, rows) in seeded {
        janitor.copy_in(&format!("COPY {} FROM STDIN (FORMAT binary)", table.name), rows)?;
    }
    janitor.query(&format!("COMMIT; {DELIVER}"))?;
    Ok(truncates)
}
