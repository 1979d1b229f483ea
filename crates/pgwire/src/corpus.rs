//! Tests the parsers with the fuzzer's corpus and with slightly modified versions of its files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::StartupPacket;
use crate::exercise::exercise;

/// Returns the files in `fuzz/corpus/wire`, keyed by name.
fn corpus() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/wire");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

#[test]
fn the_corpus_is_read_as_it_always_was() {
    let mut read = String::new();
    for (name, bytes) in corpus() {
        exercise(&bytes);
        writeln!(read, "{name}: {:?}", StartupPacket::read(&bytes)).unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/golden.txt");
    assert_eq!(read, fs::read_to_string(golden).unwrap());
}

/// Generates either a corpus file with a few modified bytes, or arbitrary bytes.
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
        exercise(&bytes);
    }
}
