//! Requests new databases at the maximum rate. Each of several workers repeatedly gets a database, runs one query and
//! releases the database.

use std::time::Duration;

use report::{Contender, PhaseTimes, cycles};
use server::AdminConnection;

use super::{QUERY, Strategy};
use crate::BenchError;
use crate::fixture::{Fixture, MANUAL_DATABASE, NO_LINGER};

/// Duration of each contender's turn in a round.
const SPAN: Duration = Duration::from_secs(1);

/// The names of the contenders with `workers` workers.
///
/// By hand, more workers would gain nothing: copying a database already keeps one CPU busy, and eight sessions keep
/// two CPUs busy.
pub(super) struct WorkerContenders {
    pub(super) workers: usize,
    pub(super) gateway: &'static str,
    pub(super) by_hand: Option<&'static str>,
    /// A contender that opens sessions with an existing database over the server's own socket, to show how the rate of
    /// plain sessions depends on the number of workers.
    pub(super) session: Option<&'static str>,
}

const fn worker_contenders(
    workers: usize,
    gateway: &'static str,
    by_hand: Option<&'static str>,
    session: Option<&'static str>,
) -> WorkerContenders {
    WorkerContenders { workers, gateway, by_hand, session }
}

pub(super) const WORKERS: [WorkerContenders; 7] = [
    worker_contenders(
        1,
        "1 worker through the gateway",
        Some("1 worker by hand"),
        Some("1 worker, a session alone"),
    ),
    worker_contenders(
        2,
        "2 workers through the gateway",
        Some("2 workers by hand"),
        Some("2 workers, a session alone"),
    ),
    worker_contenders(4, "4 workers through the gateway", None, Some("4 workers, a session alone")),
    worker_contenders(
        8,
        "8 workers through the gateway",
        Some("8 workers by hand"),
        Some("8 workers, a session alone"),
    ),
    worker_contenders(16, "16 workers through the gateway", None, None),
    worker_contenders(32, "32 workers through the gateway", None, None),
    worker_contenders(64, "64 workers through the gateway", None, None),
];

pub(super) fn contenders(fixture: &Fixture) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let mut contenders = Vec::new();
    for WorkerContenders { workers, gateway, by_hand, session } in WORKERS {
        contenders.push(Contender::new(gateway, move || {
            run_workers(&mut vec![(); workers], &|()| through_the_gateway(fixture))
        }));
        if let Some(session) = session {
            contenders.push(Contender::new(session, move || {
                run_workers(&mut vec![(); workers], &|()| session_alone(fixture))
            }));
        }
        let Some(by_hand) = by_hand else { continue };
        let mut admins = (0..workers).map(|_| fixture.admin()).collect::<Result<Vec<_>, _>>()?;
        contenders.push(Contender::new(by_hand, move || {
            run_workers(&mut admins, &|admin| through_sql(fixture, admin))
        }));
    }
    Ok(contenders)
}

fn session_alone(fixture: &Fixture) -> Result<(), BenchError> {
    let mut client = fixture.socket().connect(MANUAL_DATABASE, &[])?;
    client.query(QUERY)?;
    Ok(client.close()?)
}

fn through_the_gateway(fixture: &Fixture) -> Result<(), BenchError> {
    let mut client = fixture.gateway().connect(&fixture.new_name(), &[NO_LINGER])?;
    client.query(QUERY)?;
    Ok(client.close()?)
}

fn through_sql(fixture: &Fixture, admin: &mut AdminConnection) -> Result<(), BenchError> {
    let name = fixture.new_name();
    Strategy::best(fixture.major()).create(admin, &name)?;
    let mut client = fixture.socket().connect(&name, &[])?;
    client.query(QUERY)?;
    client.close()?;
    admin.query(&format!("DROP DATABASE {name}"))?;
    Ok(())
}

/// Runs `cycle` repeatedly in one thread per worker. Returns the mean time per database as a phase.
pub(super) fn run_workers<W: Send>(
    workers: &mut [W],
    cycle: &(dyn Fn(&mut W) -> Result<(), BenchError> + Sync),
) -> Result<PhaseTimes, BenchError> {
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(|| cycles(SPAN, || cycle(worker)))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let count: u32 = done.iter().map(|(count, _)| count).sum();
    let longest = done.iter().map(|(_, span)| *span).max().unwrap_or_default();
    Ok(vec![("a database", longest / count)])
}
