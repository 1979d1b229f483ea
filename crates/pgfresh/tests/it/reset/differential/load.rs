//! Runs other leases, which start and end during the cases.

use std::sync::mpsc::Receiver;

use super::BRIEF;
use super::generate::{queries, statement};
use crate::common::connection::{Address, Connection};
use crate::common::random::Random;

/// Prefixes of statements that change all databases. Only the cases themselves run these statements, one at a time.
const SHARED: [&str; 2] = ["ALTER ROLE", "ALTER SYSTEM"];

/// Runs a lease with two sessions for each of `cases`, concurrently with the case.
pub(crate) fn play_others(address: &Address, seed: u64, cases: &Receiver<u32>) {
    let mut random = Random::seeded(!seed);
    for case in cases {
        let name = format!("other_{}", case % 3);
        for _ in 0..2 {
            let Ok(mut session) = Connection::open(address, &name, &[("options", BRIEF)]) else { continue };
            let _ = session.rows("SET lock_timeout = '200ms'");
            for _ in 0..random.below(4) {
                let line = statement(&mut random, 3);
                // If all databases changed at a random moment, sessions couldn't be compared.
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
