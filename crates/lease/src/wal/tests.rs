//! Tests the reader with synthetic logs. Every irregularity must be an error, and damage must never hide a change.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::changes::{Changes, FileChanges, SharedChange};
use super::error::WalError;
use super::reader::WalReader;
use super::record::RelationFile;
use crate::lsn::Lsn;

/// Minimum segment size supported by initdb, so that tests reach the end of a segment.
const SEGMENT: u64 = 1 << 20;
const PAGE: u64 = 8192;
const MAGIC: u16 = 0xD110;

const XLOG: u8 = 0;
const XACT: u8 = 1;
const SMGR: u8 = 2;
const HEAP: u8 = 10;
const SEQ: u8 = 15;
const LOGICALMSG: u8 = 21;
const SWITCH: u8 = 0x40;

/// A log written record by record, beginning with segment 1.
struct Log {
    magic: u16,
    bytes: Vec<u8>,
    previous: u64,
    directory: tempfile::TempDir,
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("pg_wal")).unwrap();
        Self { magic: MAGIC, bytes: Vec::new(), previous: 0x18, directory }
    }

    fn end(&self) -> Lsn {
        Lsn(SEGMENT + self.bytes.len() as u64)
    }

    fn page_header(&mut self, remaining: u64) {
        let address = self.end().0;
        let long = address.is_multiple_of(SEGMENT);
        let flags = u16::from(remaining > 0) | if long { 2 } else { 0 };
        self.bytes.extend(self.magic.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(1u32.to_ne_bytes());
        self.bytes.extend(address.to_ne_bytes());
        self.bytes.extend(u32::try_from(remaining).unwrap().to_ne_bytes());
        self.bytes.extend([0; 4]);
        if long {
            self.bytes.extend(7u64.to_ne_bytes());
            self.bytes.extend(u32::try_from(SEGMENT).unwrap().to_ne_bytes());
            self.bytes.extend(u32::try_from(PAGE).unwrap().to_ne_bytes());
        }
    }

    /// Writes a record and returns its start.
    fn append(&mut self, manager: u8, info: u8, transaction: u32, body: &[u8]) -> u64 {
        if self.end().0.is_multiple_of(PAGE) {
            self.page_header(0);
        }
        let start = self.end().0;
        let mut record = u32::try_from(24 + body.len()).unwrap().to_ne_bytes().to_vec();
        record.extend(transaction.to_ne_bytes());
        record.extend(self.previous.to_ne_bytes());
        record.extend([info, manager, 0, 0]);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(body), &record);
        record.extend(checksum.to_ne_bytes());
        record.extend(body);
        let mut rest = &record[..];
        while !rest.is_empty() {
            if self.end().0.is_multiple_of(PAGE) {
                self.page_header(rest.len() as u64);
            }
            let room = usize::try_from(PAGE - self.end().0 % PAGE).unwrap();
            let (here, left) = rest.split_at(room.min(rest.len()));
            self.bytes.extend(here);
            rest = left;
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.previous = start;
        if manager == XLOG && info == SWITCH {
            let whole = self.bytes.len().next_multiple_of(usize::try_from(SEGMENT).unwrap());
            self.bytes.resize(whole, 0);
        }
        start
    }

    fn insert(&mut self, transaction: u32, number: u32) -> u64 {
        self.append(HEAP, 0x00, transaction, &block(file(number), &[9; 11], &[1, 0, 8]))
    }

    /// Writes a record for truncating all forks of a file, with `pages` pages left in the main fork.
    fn truncate(&mut self, pages: u32, number: u32) {
        let RelationFile { tablespace, database, number } = file(number);
        let numbers = [pages, tablespace, database, number, 7].map(u32::to_ne_bytes).concat();
        self.append(SMGR, 0x20, 0, &[&[255, 20], &numbers[..]].concat());
    }

    fn message(&mut self, length: usize) {
        let mut body = vec![254];
        body.extend(u32::try_from(length).unwrap().to_ne_bytes());
        body.resize(body.len() + length, 5);
        self.append(LOGICALMSG, 0, 0, &body);
    }

    fn commit(&mut self, transaction: u32) {
        self.append(XACT, 0x00, transaction, &[255, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// Fills the current page until `left` bytes of it remain.
    fn fill_page(&mut self, left: u64) {
        if self.end().0.is_multiple_of(PAGE) {
            self.message(1000);
        }
        let room = PAGE - self.end().0 % PAGE - left;
        self.message(usize::try_from(room - 24 - 5).unwrap());
        assert_eq!(PAGE - (self.end().0 - 1) % PAGE - 1, left % PAGE);
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.directory.path().join(format!("pg_wal/0000000100000000{segment:08X}"))
    }

    /// Writes the segments to files, filling the rest after the last record with zeros.
    fn save(&self) -> &Path {
        let size = usize::try_from(SEGMENT).unwrap();
        for (segment, bytes) in (1..).zip(self.bytes.chunks(size)) {
            let mut whole = bytes.to_vec();
            whole.resize(size, 0);
            fs::write(self.path(segment), whole).unwrap();
        }
        self.directory.path()
    }

    fn reader(&self) -> Result<WalReader, WalError> {
        WalReader::open(self.save(), Lsn(SEGMENT))
    }

    fn read(&self) -> Result<WalReader, WalError> {
        let mut reader = self.reader()?;
        reader.advance(self.end())?;
        Ok(reader)
    }
}

fn file(number: u32) -> RelationFile {
    RelationFile { tablespace: 1663, database: 5, number }
}

/// Returns the body of a record with one block. `own` is the data not belonging to a block.
fn block(file: RelationFile, data: &[u8], own: &[u8]) -> Vec<u8> {
    let mut body = vec![0, if data.is_empty() { 0 } else { 0x20 }];
    body.extend(u16::try_from(data.len()).unwrap().to_ne_bytes());
    for number in [file.tablespace, file.database, file.number, 0] {
        body.extend(number.to_ne_bytes());
    }
    body.extend([255, u8::try_from(own.len()).unwrap()]);
    body.extend(data);
    body.extend(own);
    body
}

fn inserted(rows: u64) -> FileChanges {
    FileChanges { inserted: rows, filled: true, ..FileChanges::default() }
}

#[track_caller]
fn assert_malformed<T>(result: Result<T, WalError>, expected: &str) {
    match result {
        Err(WalError::Malformed { what, .. }) => assert_eq!(what, expected),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("no error, but {expected}"),
    }
}

#[test]
fn positions_are_words_of_hexadecimal_digits() {
    for (text, value) in [("0/1A2B3C8", 0x1A2_B3C8), ("1/0", 1 << 32), ("FFFFFFFF/FFFFFFFF", u64::MAX)] {
        assert_eq!(text.parse(), Ok(Lsn(value)));
        assert_eq!(Lsn(value).to_string(), text);
    }
    for text in ["", "/", "0/", "1", "0/+1", "0/123456789", "0/0/0", " 0/1"] {
        text.parse::<Lsn>().unwrap_err();
    }
}

#[test]
fn change_and_its_commit_are_reported_once() {
    let mut log = Log::new();
    log.insert(700, 1);
    log.insert(700, 1);
    let mut reader = log.read().unwrap();
    assert_eq!(reader.peek(5).unwrap().files[&file(1)], inserted(2));
    assert!(!reader.peek(5).unwrap().committed);
    assert_eq!(reader.peek(6), None);
    log.commit(700);
    log.save();
    reader.advance(log.end()).unwrap();
    let changes = reader.take(5);
    assert_eq!(changes.files.len(), 1);
    assert!(changes.committed && changes.doubt.is_none());
    assert_eq!(reader.take(5), Changes::default());
}

#[test]
fn only_truncation_to_no_pages_leaves_file_unfilled() {
    let mut log = Log::new();
    for number in 1..=4 {
        log.insert(700, number);
    }
    log.truncate(0, 2);
    log.truncate(1, 3);
    log.truncate(0, 4);
    log.insert(700, 4);
    log.truncate(1, 5);
    let files = log.read().unwrap().take(5).files;
    assert_eq!(
        (1..=5).map(|number| files[&file(number)].filled).collect::<Vec<_>>(),
        [true, false, true, true, true]
    );
}

#[test]
fn commit_after_taken_change_is_doubt() {
    let mut log = Log::new();
    log.insert(700, 1);
    let mut reader = log.read().unwrap();
    reader.take(5);
    log.commit(700);
    log.save();
    reader.advance(log.end()).unwrap();
    let changes = reader.take(5);
    assert!(changes.committed && changes.doubt.is_some());
}

#[test]
fn a_record_across_pages_and_segments_is_one() {
    for left in (8..64).step_by(8).chain([0]) {
        let mut log = Log::new();
        log.fill_page(left);
        log.insert(700, 1);
        log.message(100_000);
        while SEGMENT - log.end().0 % SEGMENT > PAGE {
            log.fill_page(0);
        }
        log.fill_page(left);
        log.insert(700, 2);
        let mut reader = log.read().unwrap();
        assert_eq!(reader.take(5).files.len(), 2, "{left} bytes left on the page");
    }
}

#[test]
fn reading_wal_in_steps_equals_reading_at_once() {
    let mut log = Log::new();
    let mut reader = log.reader();
    for number in 0..400 {
        log.insert(700, number % 7);
        log.message(usize::try_from(number * 5).unwrap());
        if reader.is_err() {
            reader = log.reader();
        }
        log.save();
        reader.as_mut().unwrap().advance(log.end()).unwrap();
    }
    assert_eq!(reader.unwrap().take(5), log.read().unwrap().take(5));
}

#[test]
fn wal_switch_skips_rest_of_segment() {
    let mut log = Log::new();
    log.insert(700, 1);
    let switch = log.append(XLOG, SWITCH, 0, &[]);
    let mut reader = log.reader().unwrap();
    // `pg_switch_wal` returns a position after the record, in the empty rest of the segment.
    reader.advance(Lsn(switch + 24)).unwrap();
    reader.advance(Lsn(switch + 24)).unwrap();
    log.insert(700, 2);
    log.save();
    reader.advance(log.end()).unwrap();
    assert_eq!(reader.take(5).files.len(), 2);
    assert_eq!(reader.position(), log.end());
}

#[test]
fn wal_end_at_page_start_ignores_header() {
    let mut log = Log::new();
    log.insert(700, 1);
    log.fill_page(0);
    let (before, behind) = (log.end(), Lsn(log.end().0 + 24));
    let mut reader = log.reader().unwrap();
    for end in [before, behind, before] {
        reader.advance(end).unwrap();
        assert_eq!(reader.position(), behind);
    }
    log.insert(700, 2);
    log.save();
    reader.advance(log.end()).unwrap();
    let mut other = WalReader::open(log.directory.path(), before).unwrap();
    other.advance(log.end()).unwrap();
    assert_eq!(other.take(5).files.len(), 1);
}

#[test]
fn wrong_wal_checksum_is_a_lasting_error() {
    let mut log = Log::new();
    let at = log.insert(700, 1);
    let inside = usize::try_from(at - SEGMENT + 30).unwrap();
    log.bytes[inside] ^= 1;
    let mut reader = log.reader().unwrap();
    assert!(matches!(reader.advance(log.end()), Err(WalError::Checksum { at: Lsn(found) }) if found == at));
    reader.advance(log.end()).unwrap_err();
}

#[test]
fn an_old_page_is_a_gap() {
    let mut log = Log::new();
    log.message(20_000);
    log.insert(700, 1);
    log.bytes[usize::try_from(PAGE).unwrap() + 8] ^= 1;
    assert!(matches!(log.read(), Err(WalError::Gap { at: Lsn(at) }) if at == SEGMENT + PAGE));
}

#[test]
fn record_not_following_the_last_is_an_error() {
    let mut log = Log::new();
    log.insert(700, 1);
    log.previous -= 8;
    log.insert(700, 2);
    assert_malformed(log.read(), "the record does not follow the one before it");
}

#[test]
fn an_unknown_magic_number_is_an_error() {
    let mut log = Log::new();
    log.magic = 0xD11C;
    log.insert(700, 1);
    assert!(matches!(log.read(), Err(WalError::Magic(0xD11C))));
    for magic in [0xD106, 0xD10D, 0xD110, 0xD113, 0xD116, 0xD118, 0xD122] {
        let mut log = Log::new();
        log.magic = magic;
        log.insert(700, 1);
        log.read().unwrap();
    }
}

#[test]
fn an_incomplete_record_is_an_error() {
    let mut log = Log::new();
    log.insert(700, 1);
    let whole = log.end();
    log.message(20_000);
    for end in [whole.0 + 8, whole.0 + 100, SEGMENT + PAGE, SEGMENT + 2 * PAGE + 8, log.end().0 - 8] {
        let mut reader = log.reader().unwrap();
        let result = reader.advance(Lsn(end));
        assert_malformed(result, "the record does not end where the log does");
    }
}

#[test]
fn wal_end_before_read_position_is_an_error() {
    let mut log = Log::new();
    log.insert(700, 1);
    let mut reader = log.read().unwrap();
    let result = reader.advance(Lsn(log.end().0 - 8));
    assert!(matches!(result, Err(WalError::Backwards { .. })));
}

#[test]
fn lost_rest_of_record_is_an_error() {
    for (magic, overwritten) in [(0xD106, 0x08), (0xD118, 0x08), (0xD122, 0x04)] {
        let mut log = Log::new();
        log.magic = magic;
        log.message(20_000);
        log.bytes[usize::try_from(PAGE).unwrap() + 2] |= overwritten;
        assert_malformed(log.read(), "a crash has lost the rest of the record before this page");
        log.bytes[usize::try_from(PAGE).unwrap() + 2] = 2 * overwritten;
        assert_malformed(log.read(), "the page has unknown flags");
    }
}

/// Since 19, two more kinds of XLOG change nothing.
#[test]
fn new_xlog_kinds_are_known_since_19() {
    for info in [0xC0, 0xF0] {
        for (magic, is_known) in [(0xD118, false), (0xD122, true)] {
            let mut log = Log::new();
            log.magic = magic;
            log.append(XLOG, info, 0, &[]);
            assert_eq!(log.read().unwrap().peek(5).is_none(), is_known, "{magic:X} {info:X}");
        }
    }
}

#[test]
fn another_timeline_is_an_error() {
    let mut log = Log::new();
    log.insert(700, 1);
    log.save();
    fs::write(log.directory.path().join("pg_wal/00000002.history"), "").unwrap();
    assert!(matches!(log.reader(), Err(WalError::Timeline(_))));
}

#[test]
fn unknown_record_changes_its_files_or_everything() {
    let mut log = Log::new();
    log.append(130, 0x50, 700, &block(file(1), &[], &[]));
    let mut reader = log.read().unwrap();
    assert!(reader.take(5).files[&file(1)].other);
    assert_eq!(reader.peek(6), None);
    for (manager, info) in [(130, 0x50), (XLOG, 0xF0), (XACT, 0x70), (LOGICALMSG, 0x01)] {
        let mut log = Log::new();
        log.insert(700, 1);
        log.append(manager, info, 700, &[]);
        let mut reader = log.read().unwrap();
        for database in [5, 6] {
            assert!(reader.peek(database).unwrap().doubt.is_some(), "{manager} {info:#x}");
            assert!(reader.take(database).doubt.is_some());
            assert_eq!(reader.peek(database), None);
        }
    }
}

#[test]
fn sequences_do_not_commit_and_shared_changes_wait() {
    let mut log = Log::new();
    let shared = RelationFile { tablespace: 1664, database: 0, number: 1260 };
    log.append(SEQ, 0x00, 700, &block(file(1), &[], &[1; 12]));
    log.append(HEAP, 0x00, 700, &block(shared, &[], &[1, 0, 8]));
    log.append(HEAP, 0x00, 701, &block(shared, &[], &[1, 0, 8]));
    let mut reader = log.read().unwrap();
    assert_eq!(reader.take_shared(), []);
    // First a rollback, then a commit that names its database.
    log.append(XACT, 0x20, 701, &[255, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut commit = vec![255, 20, 0, 0, 0, 0, 0, 0, 0, 0];
    for number in [1u32, 5, 1663] {
        commit.extend(number.to_ne_bytes());
    }
    log.append(XACT, 0x80, 700, &commit);
    log.save();
    reader.advance(log.end()).unwrap();
    assert_eq!(reader.take_shared(), [SharedChange { file: shared, from: Some(5), in_place: false }]);
    let changes = reader.take(5);
    assert!(changes.files[&file(1)].sequence && !changes.committed);
}

/// A session's step in a generated log.
#[derive(Debug, Clone)]
enum Step {
    Insert(u32, u32),
    Message(usize),
    Commit(u32),
    Switch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (700..710u32, 0..20u32).prop_map(|(transaction, number)| Step::Insert(transaction, number)),
        4 => (0..9000usize).prop_map(Step::Message),
        2 => (700..710u32).prop_map(Step::Commit),
        1 => Just(Step::Switch),
    ];
    prop::collection::vec(step, 1..60)
}

fn write(steps: &[Step]) -> Log {
    let mut log = Log::new();
    log.insert(700, 1);
    let mut switches = 0;
    for step in steps {
        match step {
            Step::Insert(transaction, number) => drop(log.insert(*transaction, *number)),
            Step::Message(length) => log.message(*length),
            Step::Commit(transaction) => log.commit(*transaction),
            Step::Switch if switches < 2 => {
                switches += 1;
                log.append(XLOG, SWITCH, 0, &[]);
            }
            Step::Switch => {}
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_never_hides_a_change(steps in steps(), at in any::<prop::sample::Index>(), mask in 1..=255u8, cut: bool) {
        let mut log = write(&steps);
        let end = log.end();
        let mut whole = log.read().unwrap();
        let at = at.index(log.bytes.len());
        if cut {
            log.bytes[at..].fill(0);
        } else {
            log.bytes[at] ^= mask;
        }
        let mut damaged = log.reader();
        if let Ok(reader) = &mut damaged && reader.advance(end).is_ok() {
            prop_assert_eq!(reader.take(5), whole.take(5));
            prop_assert_eq!(reader.take_shared(), whole.take_shared());
        }
    }

    #[test]
    #[expect(clippy::let_underscore_must_use, reason = "it only must not panic")]
    fn any_bytes_are_read_without_a_panic(steps in steps(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200), end in any::<prop::sample::Index>()) {
        let mut log = write(&steps);
        for (at, byte) in &noise {
            let at = at.index(log.bytes.len());
            log.bytes[at] = *byte;
        }
        let end = Lsn(SEGMENT + end.index(log.bytes.len()) as u64);
        if let Ok(mut reader) = log.reader() {
            let _ = reader.advance(end);
        }
    }

    #[test]
    #[expect(clippy::let_underscore_must_use, reason = "it only must not panic")]
    fn bodies_with_valid_checksums_cause_no_panic(
        manager: u8, info: u8, body in prop::collection::vec(any::<u8>(), 0..80), magic in prop::sample::select(vec![0xD106u16, 0xD110, 0xD118, 0xD122]),
    ) {
        let mut log = Log::new();
        log.magic = magic;
        log.append(manager, info, 700, &body);
        let _ = log.read();
        // In another record, use the body as data without a block, to test the parsers for all kinds.
        let mut own = vec![255, u8::try_from(body.len()).unwrap()];
        own.extend(&body);
        log.append(manager, info, 700, &own);
        let _ = WalReader::open(log.save(), Lsn(log.previous)).unwrap().advance(log.end());
    }
}

/// Measures the speed with the smallest records:
/// `cargo test -p pgfresh-lease --release -- --ignored --nocapture log_is_read`.
#[test]
#[ignore = "measures, proves nothing"]
fn the_log_is_read_fast() {
    let mut log = Log::new();
    for at in 0..2_000_000u32 {
        log.append(HEAP, 0x00, 700 + at / 1000, &block(file(at % 3), &[9; 48], &[1, 0, 8]));
        if at % 1000 == 999 {
            log.commit(700 + at / 1000);
        }
    }
    let mut reader = log.reader().unwrap();
    let begun = std::time::Instant::now();
    reader.advance(log.end()).unwrap();
    let megabytes = f64::from(u32::try_from(log.bytes.len() >> 10).unwrap()) / 1024.0;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{megabytes:.0} MiB in {seconds:.3} s: {:.0} MiB/s", megabytes / seconds);
    assert_eq!(reader.take(5).files.values().map(|file| file.inserted).sum::<u64>(), 2_000_000);
}
