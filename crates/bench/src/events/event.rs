//! Generates the events to append to an event store. Each event belongs to its own aggregate.

/// Size of the payload, in bytes.
const PAYLOAD_SIZE: usize = 300;

/// An event. Since the content depends only on the serial number, all targets receive the same events.
#[derive(Debug)]
pub(crate) struct Event {
    /// An identifier that looks like a random UUID. Random identifiers make the server insert index entries at
    /// random positions.
    pub(crate) id: String,
    pub(crate) aggregate: String,
    pub(crate) payload: Vec<u8>,
}

impl Event {
    pub(crate) fn new(serial: u64) -> Self {
        let word = |lane: u64| mix_bits(serial * 4 + lane);
        let id = |lane: u64| {
            let (high, low) = (word(lane), word(lane + 1));
            let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
            format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
        };
        let payload =
            (0..PAYLOAD_SIZE as u64).map(|at| b'a' + (mix_bits(serial ^ at << 32) % 26) as u8).collect();
        Self { id: id(0), aggregate: id(2), payload }
    }
}

/// Mixes a number's bits with the finalizer of `SplitMix64`. Source: Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators" (2014).
fn mix_bits(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn events_are_unique_and_deterministic() {
        let events: Vec<_> = (0..10_000).map(Event::new).collect();
        let ids: HashSet<_> = events.iter().flat_map(|event| [&event.id, &event.aggregate]).collect();
        assert_eq!(ids.len(), 20_000);
        assert!(events.iter().all(|event| event.id.len() == 36 && event.payload.len() == PAYLOAD_SIZE));
        assert_eq!(Event::new(7).id, events[7].id);
    }
}
