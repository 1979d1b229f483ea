//! The `PostgreSQL` protocol as far as a gateway has to know it; no input or output happens here.
//!
//! ```text
//! opening   length:4 code:4 …                     SSLRequest, GSSENCRequest, CancelRequest, StartupMessage
//! message   tag:1 length:4 body:length-4          everything after that, in both directions
//! ```
//!
//! Source: the manual's chapter "Frontend/Backend Protocol", 3.0 and 3.2.

mod conversation;
mod follow;
mod message;
mod negotiation;
mod opening;
mod options;
mod refusal;
mod scram;
mod sql;
mod traces;

pub(crate) use conversation::Conversation;
pub(crate) use follow::{Done, Fault, Follow, Told};
pub(crate) use message::{
    DISCARD_ALL, NOT_ENCRYPTED, PASSWORD_REQUEST, TERMINATE, cancel_request, key_of, password,
};
pub(crate) use negotiation::{negotiation, without_negotiation};
pub(crate) use opening::{Opening, Startup, opening};
pub(crate) use refusal::Refusal;
pub(crate) use scram::{Verifier, sasl_request, sasl_response};
pub(crate) use sql::SqlLexer;
pub(crate) use traces::SessionTraces;

#[cfg(test)]
#[path = "../../fuzz/exercise.rs"]
mod exercise;

/// The number in the first four bytes, if they are there.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// What there is in `fuzz/corpus/wire`, by name.
    fn corpus() -> BTreeMap<String, Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/wire");
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    }

    #[test]
    fn the_corpus_is_read_as_it_always_was() {
        let mut read = String::new();
        for (name, bytes) in corpus() {
            exercise::exercise(&bytes);
            writeln!(read, "{name}: {:?}", opening(&bytes)).unwrap();
        }
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/golden.txt");
        assert_eq!(read, fs::read_to_string(golden).unwrap());
    }

    /// A file of the corpus in which a few bytes are others, or any bytes at all.
    fn inputs() -> impl Strategy<Value = Vec<u8>> {
        let known: Vec<_> = corpus().into_values().collect();
        let others = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        let near_known = (prop::sample::select(known), others).prop_map(|(mut bytes, changes)| {
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        });
        prop_oneof![near_known, prop::collection::vec(any::<u8>(), 0..200)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]
        #[test]
        fn no_bytes_are_too_strange(bytes in inputs()) {
            exercise::exercise(&bytes);
        }
    }
}
