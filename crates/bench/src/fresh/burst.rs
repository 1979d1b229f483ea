//! Far more new databases at once than the pool has ready.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use server::Session;

use super::{QUERY, Strategy};
use crate::BenchError;
use crate::client::{Address, Client};
use crate::runner::{Contender, Phases};
use crate::stage::{BRIEF, Stage};

/// So many at once; the pool has 32 at most.
pub(super) const MANY: usize = 64;

pub(super) const GATEWAY: &str = "64 at once through the gateway";
pub(super) const BY_HAND: &str = "64 at once by hand";

pub(super) fn contenders(stage: &Stage) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let mut admins = (0..MANY).map(|_| stage.admin()).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![
        Contender::new(GATEWAY, move || {
            let names: Vec<_> = (0..MANY).map(|_| stage.new_name()).collect();
            let address = stage.gateway();
            let all = at_once(names.iter().map(|name| || first_query(&address, name, &[BRIEF])))?;
            wait_for_quiet(stage);
            Ok(all)
        }),
        Contender::new(BY_HAND, move || {
            let names: Vec<_> = (0..MANY).map(|_| stage.new_name()).collect();
            let (address, strategy) = (stage.socket(), Strategy::best(stage.major()));
            let all = at_once(admins.iter_mut().zip(&names).map(|(admin, name)| {
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
    let mut client = Client::open(address, name, parameters)?;
    client.query(QUERY)?;
    Ok(client.close()?)
}

/// Does all of it at once, each on a thread of its own; how long until the last is done.
fn at_once<F>(steps: impl Iterator<Item = F>) -> Result<Phases, BenchError>
where
    F: FnOnce() -> Result<(), BenchError> + Send,
{
    let failure = Mutex::new(Ok(()));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for step in steps {
            let failure = &failure;
            scope.spawn(move || {
                if let Err(error) = step() {
                    *failure.lock().expect("nobody panics") = Err(error);
                }
            });
        }
    });
    let taken = begun.elapsed();
    failure.into_inner().expect("nobody panics").map(|()| vec![("until the last", taken)])
}

fn drop_all(admin: &mut Session, names: &[String]) -> Result<(), BenchError> {
    for name in names {
        admin.query(&format!("DROP DATABASE {name}"))?;
    }
    Ok(())
}

/// What the burst leaves to be done in the background is not the next contender's.
fn wait_for_quiet(stage: &Stage) {
    let begun = Instant::now();
    while !stage.leases.status().leases.is_empty() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
