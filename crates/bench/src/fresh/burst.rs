//! Concurrently requests more new databases than the pool has ready.

use std::time::{Duration, Instant};

use report::{Contender, PhaseTimes};
use server::AdminConnection;

use super::{QUERY, Strategy};
use crate::BenchError;
use crate::client::Address;
use crate::fixture::{Fixture, NO_LINGER};

/// The number of concurrent requests. The pool has at most 32 databases.
pub(super) const CONCURRENT_REQUESTS: usize = 64;

pub(super) const GATEWAY: &str = "64 at once through the gateway";
pub(super) const BY_HAND: &str = "64 at once by hand";

pub(super) fn contenders(fixture: &Fixture) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let mut admins = (0..CONCURRENT_REQUESTS).map(|_| fixture.admin()).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![
        Contender::new(GATEWAY, move || {
            let names: Vec<_> = (0..CONCURRENT_REQUESTS).map(|_| fixture.new_name()).collect();
            let address = fixture.gateway();
            let all =
                run_concurrently(names.iter().map(|name| || first_query(&address, name, &[NO_LINGER])))?;
            wait_until_clean(fixture);
            Ok(all)
        }),
        Contender::new(BY_HAND, move || {
            let names: Vec<_> = (0..CONCURRENT_REQUESTS).map(|_| fixture.new_name()).collect();
            let (address, strategy) = (fixture.socket(), Strategy::best(fixture.major()));
            let all = run_concurrently(admins.iter_mut().zip(&names).map(|(admin, name)| {
                let address = &address;
                move || {
                    strategy.create(admin, name)?;
                    first_query(address, name, &[])
                }
            }))?;
            drop_all(&mut admins[0], &names)?;
            Ok(all)
        }),
    ])
}

fn first_query(address: &Address, name: &str, parameters: &[(&str, &str)]) -> Result<(), BenchError> {
    let mut client = address.connect(name, parameters)?;
    client.query(QUERY)?;
    Ok(client.close()?)
}

/// Runs all steps concurrently, each in its own thread. Returns the time until the last step finishes.
fn run_concurrently<F>(steps: impl Iterator<Item = F>) -> Result<PhaseTimes, BenchError>
where
    F: FnOnce() -> Result<(), BenchError> + Send,
{
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = steps.map(|step| scope.spawn(step)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(vec![("until the last", begun.elapsed())])
}

fn drop_all(admin: &mut AdminConnection, names: &[String]) -> Result<(), BenchError> {
    for name in names {
        admin.query(&format!("DROP DATABASE {name}"))?;
    }
    Ok(())
}

/// Waits until the gateway has cleaned up after the burst, because cleanup would disturb the next contender.
fn wait_until_clean(fixture: &Fixture) {
    let begun = Instant::now();
    while !fixture.leases.status().leases.is_empty() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
