//! Other leases that begin and end during the cases.

use std::sync::mpsc::Receiver;

use super::BRIEF;
use super::generate::{queries, statement};
use crate::common::connection::{Address, Connection};
use crate::common::random::Random;

/// Beginnings of statements that change all databases; only the cases themselves have them, one at a time.
const SHARED: [&str; 2] = ["ALTER ROLE", "ALTER SYSTEM"];

/// Plays a lease of two sessions for each of `cases`, at the same time as the case.
pub(crate) fn play_others(address: &Address, seed: u64, cases: &Receiver<u32>) {
    let mut random = Random::seeded(!seed);
    for case in cases {
        let name = format!("other_{}", case % 3);
        for _ in 0..2 {
            let Ok(mut session) = Connection::open(address, &name, &[("options", BRIEF)]) else { continue };
            let _ = session.rows("SET lock_timeout = '200ms'");
            for _ in 0..random.below(4) {
                let line = statement(&mut random, 3);
                // A change of all databases at any moment would make sessions incomparable.
                if !SHARED.iter().any(|start| line.starts_with(start)) {
                    queries(&line).for_each(|query| drop(session.rows(query)));
                }
            }
            if random.chance(50) {
                session.close();
            }
        }
    }
}
