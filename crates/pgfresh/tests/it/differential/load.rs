//! Other leases that come and go meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::BRIEF;
use super::generate::{queries, statement};
use crate::common::connection::{Address, Connection};
use crate::common::random::Random;

/// Between two leases, so that the cases themselves have most of the machine.
const PAUSE: Duration = Duration::from_millis(20);

/// What statements begin with that change all databases; the cases themselves have them, one at a time.
const SHARED: [&str; 2] = ["ALTER ROLE", "ALTER SYSTEM"];

/// Plays leases of two sessions each until `ended`.
pub(crate) fn play_others(address: &Address, seed: u64, ended: &AtomicBool) {
    let mut random = Random::seeded(!seed);
    for round in 0.. {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("other_{}", round % 3);
        for _ in 0..2 {
            let Ok(mut session) = Connection::open(address, &name, &[("options", BRIEF)]) else { continue };
            let _ = session.rows("SET lock_timeout = '200ms'");
            for _ in 0..random.below(4) {
                let line = statement(&mut random, 3);
                // What changes all databases at any moment makes no two sessions comparable.
                if !SHARED.iter().any(|start| line.starts_with(start)) {
                    queries(&line).for_each(|query| drop(session.rows(query)));
                }
            }
            if random.chance(50) {
                session.close();
            }
        }
        thread::sleep(PAUSE);
    }
}
