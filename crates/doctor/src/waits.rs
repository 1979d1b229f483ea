//! What the clients of a server wait for, seen through `pg_stat_activity` while they work.
//!
//! One look every 10 ms costs the server less than 5 % of a processor. Names of wait events differ between majors in
//! upper and lower case alone.

use std::collections::BTreeMap;
use std::time::Instant;

use server::{Session, SessionError};

/// One look: who is at work, and what they wait for.
const LOOK: &str = "SELECT coalesce(wait_event_type, ''), coalesce(wait_event, ''), count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid() GROUP BY 1, 2";

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Data that are to reach the disk, his own or those that another client flushes for him.
    Sync,
    /// A lock: until whoever holds it goes on.
    Lock,
    /// Something else, or nothing.
    Other,
}

/// Source: the manual's tables of wait events, versions 13 to 18.
pub(crate) fn cause(kind: &str, event: &str) -> Cause {
    let event = event.to_ascii_lowercase();
    match kind {
        "IO" if event.ends_with("sync") => Cause::Sync,
        // Whoever comes while another flushes waits for that; CREATE and DROP DATABASE for a checkpoint.
        "LWLock" if event == "walwrite" => Cause::Sync,
        "IPC" if event.starts_with("checkpoint") => Cause::Sync,
        "Lock" => Cause::Lock,
        _ => Cause::Other,
    }
}

/// What was seen between two looks.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    seconds: f64,
    active: f64,
    syncing: f64,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    slices: Vec<Slice>,
    /// Seconds of clients for each event that is a sync.
    events: BTreeMap<String, f64>,
    before: Option<Instant>,
}

impl Waits {
    /// Looks once; what is seen counts for the time since the look before.
    pub(crate) fn look(&mut self, session: &mut Session) -> Result<(), SessionError> {
        let rows = session.query(LOOK)?;
        let now = Instant::now();
        let seconds = self.before.replace(now).map_or(0.0, |before| (now - before).as_secs_f64());
        let seen = rows.iter().filter_map(|row| match &row[..] {
            [Some(kind), Some(event), Some(count)] => {
                Some((kind.as_str(), event.as_str(), count.parse().ok()?))
            }
            _ => None,
        });
        self.add(seconds, seen);
        Ok(())
    }

    fn add<'a>(&mut self, seconds: f64, seen: impl Iterator<Item = (&'a str, &'a str, f64)>) {
        let mut slice = Slice { seconds, ..Slice::default() };
        let mut locked = 0.0;
        for (kind, event, count) in seen {
            slice.active += count;
            match cause(kind, event) {
                Cause::Sync => {
                    slice.syncing += count;
                    *self.events.entry(event.to_owned()).or_default() += count * seconds;
                }
                Cause::Lock => locked += count,
                Cause::Other => {}
            }
        }
        // Whoever waits for a lock while another syncs waits for that sync.
        if slice.syncing > 0.0 {
            slice.syncing += locked;
        }
        self.slices.push(slice);
    }

    /// How many looks there were.
    pub(crate) fn looks(&self) -> usize {
        self.slices.len()
    }

    /// How many clients work at once when there is work: exceeded in 5 % of that time.
    pub(crate) fn width(&self) -> f64 {
        let mut active: Vec<f64> =
            self.slices.iter().map(|slice| slice.active).filter(|active| *active > 0.0).collect();
        active.sort_by(f64::total_cmp);
        active.get(active.len() * 95 / 100).copied().unwrap_or(1.0)
    }

    /// The share of their time that clients are at work, and that they wait for syncs, in each of `parts` equal parts.
    pub(crate) fn shares(&self, parts: usize) -> Vec<(f64, f64)> {
        let total: f64 = self.slices.iter().map(|slice| slice.seconds).sum();
        let (width, length) = (self.width(), total / crate::device::as_f64(parts as u64));
        let mut sums = vec![(0.0, 0.0); parts];
        let mut begun = 0.0;
        for slice in &self.slices {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let part = ((begun / length) as usize).min(parts - 1);
            let weight = slice.seconds / (length * width);
            // More clients than usual count as the usual number.
            let crowd = (slice.active / width).max(1.0);
            sums[part].0 += slice.active / crowd * weight;
            sums[part].1 += slice.syncing / crowd * weight;
            begun += slice.seconds;
        }
        sums
    }

    /// The sync events, and the share of the clients' time that went into each, greatest first.
    pub(crate) fn events(&self) -> Vec<(&str, f64)> {
        let total: f64 = self.slices.iter().map(|slice| slice.seconds).sum::<f64>() * self.width();
        let mut events: Vec<_> =
            self.events.iter().map(|(event, seconds)| (event.as_str(), seconds / total)).collect();
        events.sort_by(|one, other| other.1.total_cmp(&one.1));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_told_from_other_waits_in_every_major() {
        for (kind, event, expected) in [
            ("IO", "WALSync", Cause::Sync),
            ("IO", "WalSync", Cause::Sync),
            ("IO", "DataFileImmediateSync", Cause::Sync),
            ("IO", "DataFileRead", Cause::Other),
            ("IO", "WALWrite", Cause::Other),
            ("LWLock", "WALWrite", Cause::Sync),
            ("IPC", "CheckpointDone", Cause::Sync),
            ("IPC", "SyncRep", Cause::Other),
            ("Lock", "transactionid", Cause::Lock),
            ("", "", Cause::Other),
        ] {
            assert_eq!(cause(kind, event), expected, "{kind} {event}");
        }
    }

    #[test]
    fn shares_are_of_the_time_of_the_clients_that_there_are() {
        let mut waits = Waits::default();
        // Two clients: for half of the time one of them syncs and the other waits for its lock, then both compute.
        for look in 0..100 {
            let seen: &[(&str, &str, f64)] = if look % 2 == 0 {
                &[("IO", "WALSync", 1.0), ("Lock", "tuple", 1.0)]
            } else {
                &[("", "", 2.0)]
            };
            waits.add(0.01, seen.iter().copied());
        }
        assert!((waits.width() - 2.0).abs() < 1e-9);
        for (active, syncing) in waits.shares(10) {
            assert!((active - 1.0).abs() < 0.11 && (syncing - 0.5).abs() < 0.11, "{active} {syncing}");
        }
        assert_eq!(waits.events().len(), 1);
        assert!((waits.events()[0].1 - 0.25).abs() < 1e-9);
    }

    #[test]
    fn one_client_after_another_is_one_client() {
        let mut waits = Waits::default();
        for look in 0..100 {
            let seen: &[(&str, &str, f64)] = if look % 4 == 0 { &[("IO", "WalSync", 1.0)] } else { &[] };
            waits.add(0.01, seen.iter().copied());
        }
        let (active, syncing) = waits.shares(1)[0];
        assert!((active - 0.25).abs() < 1e-9 && (syncing - 0.25).abs() < 1e-9);
        assert_eq!(Waits::default().shares(3), [(0.0, 0.0); 3]);
    }
}
