//! Finds a record's bytes in the log's files and checks that each page is the expected one.
//!
//! The log is a sequence of segment files (16 MiB by default). A segment consists of pages of 8 KiB, each with a
//! header, and a record may continue on the following pages. Since the server renames and reuses old segments with
//! their old pages still inside, a page is valid only if its header has the expected address. Source:
//! `access/xlog_internal.h`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sys::{Directory, FileKind};

use super::error::WalError;
use super::record::{HEADER, field};
use crate::lsn::Lsn;

/// Size of a log page, in bytes. Source: `XLOG_BLCKSZ`, which is repeated in every long page header.
pub(super) const PAGE: u64 = 8192;
/// Length of a page header, in bytes. The first page of each segment has a longer header.
const SHORT_HEADER: u64 = 24;
const LONG_HEADER: u64 = 40;

/// Flag for a page that begins with the continuation of a record (`XLP_FIRST_IS_CONTRECORD`).
const CONTINUES: u16 = 0x01;
/// Flag for a long header (`XLP_LONG_HEADER`).
const LONG: u16 = 0x02;

/// Maximum number of bytes to read from a segment in one call.
const CHUNK: u64 = 256 * 1024;
/// Capacity, in bytes, that the buffer may retain after an unusually large record.
const SPARE: usize = 4 << 20;

/// Returns the major version that uses this magic number in its pages, or `None` if the number is unknown. Source:
/// `XLOG_PAGE_MAGIC`.
pub(super) fn major(magic: u16) -> Option<u32> {
    match magic {
        0xD106 => Some(13),
        0xD10D => Some(14),
        0xD110 => Some(15),
        0xD113 => Some(16),
        0xD116 => Some(17),
        0xD118 => Some(18),
        0xD122 => Some(19),
        _ => None,
    }
}

/// A page header. Only long headers have the last three fields.
struct Header {
    magic: u16,
    flags: u16,
    timeline: u32,
    address: u64,
    remaining: u32,
    system: u64,
    segment_size: u32,
    page_size: u32,
}

impl Header {
    /// Reads a short or long header. For a short header, the last three fields contain the bytes following it. Returns
    /// `None` for fewer than 40 bytes.
    fn read(page: &[u8]) -> Option<Self> {
        Some(Self {
            magic: u16::from_ne_bytes(field(page, 0)?),
            flags: u16::from_ne_bytes(field(page, 2)?),
            timeline: u32::from_ne_bytes(field(page, 4)?),
            address: u64::from_ne_bytes(field(page, 8)?),
            remaining: u32::from_ne_bytes(field(page, 16)?),
            system: u64::from_ne_bytes(field(page, 24)?),
            segment_size: u32::from_ne_bytes(field(page, 32)?),
            page_size: u32::from_ne_bytes(field(page, 36)?),
        })
    }
}

/// Content that the reader expects on a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A record starts directly after the page header.
    AtStart,
    /// A record starts further into the page.
    Inside,
    /// A record continues on this page, with this many bytes left.
    Continued(u64),
}

/// A record's bytes and the position where the log continues.
pub(super) struct Span<'a> {
    /// All bytes of the record.
    pub(super) bytes: &'a [u8],
    /// Position after the record and its padding. If the record ends with a page, this is the start of the next page.
    pub(super) end: u64,
}

/// The pages of a log.
#[derive(Debug)]
pub(super) struct Pages {
    folder: Directory,
    /// Path of the log's directory, for error messages.
    path: PathBuf,
    segment_size: u64,
    /// Values that page headers must have: the magic number (in every header) and the cluster's identifier (in long
    /// headers).
    magic: u16,
    system: u64,
    /// The last segment read (still open), with its number.
    file: Option<(u64, File)>,
    /// Pages of that segment, beginning at the address `start`.
    buffer: Vec<u8>,
    start: u64,
    /// The last page whose header was checked.
    checked: Option<u64>,
    /// Buffer for a record that spans several pages.
    scratch: Vec<u8>,
}

impl Pages {
    /// Opens the log in `data`, detecting its format from the segment that contains `position`.
    pub(super) fn open(data: &Path, position: u64) -> Result<Self, WalError> {
        let path = data.join("pg_wal");
        let io = |source| WalError::Io { verb: "read", path: path.clone(), source };
        let folder = Directory::open(data).and_then(|data| data.directory("pg_wal")).map_err(io)?;
        let segment_size = segment_size(&folder, &path)?;
        let mut pages = Self {
            folder,
            path,
            segment_size,
            magic: 0,
            system: 0,
            file: None,
            buffer: Vec::new(),
            start: 0,
            checked: None,
            scratch: Vec::new(),
        };
        let segment = position / segment_size;
        // If the position is at the start of a segment, that segment may not exist yet or may still contain old pages.
        let at_start = position % segment_size <= LONG_HEADER;
        let header = match pages.long_header(segment) {
            Err(WalError::Gap { .. } | WalError::Io { .. }) if at_start && segment > 0 => {
                pages.long_header(segment - 1)?
            }
            header => header?,
        };
        (pages.magic, pages.system) = (header.magic, header.system);
        Ok(pages)
    }

    /// Returns the major version of the server writing this log.
    pub(super) fn major(&self) -> u32 {
        major(self.magic).unwrap_or_default()
    }

    /// Returns the start of the record at `position`. If `position` is the start of a page, the record starts after the
    /// page header.
    pub(super) fn record_start(&self, position: u64) -> Result<u64, WalError> {
        let header = self.header_length(position);
        match position % PAGE {
            0 => Ok(position + header),
            offset if offset >= header && offset.is_multiple_of(8) => Ok(position),
            _ => Err(WalError::malformed(position, "no record can start here")),
        }
    }

    /// Returns the start of the segment after the one that contains `position`.
    pub(super) fn next_segment(&self, position: u64) -> u64 {
        (position / self.segment_size + 1) * self.segment_size
    }

    /// Discards the buffered bytes, because the server may have written more to their pages in the meantime.
    pub(super) fn refresh(&mut self) {
        self.buffer.clear();
        self.checked = None;
        if self.scratch.capacity() > SPARE {
            self.scratch = Vec::new();
        }
    }

    /// Returns the record that starts at `at`, which must not extend beyond `end`.
    pub(super) fn record(&mut self, at: u64, end: u64) -> Result<Span<'_>, WalError> {
        let incomplete = || WalError::malformed(at, "the record does not end where the log does");
        let offset = at % PAGE;
        let entry = if offset == self.header_length(at) { Entry::AtStart } else { Entry::Inside };
        let from = position_in_page(at);
        let page = self.page(at, end, entry)?;
        let length = field(page, from).map_or(0, u32::from_ne_bytes);
        let length = u64::from(length);
        if length < HEADER as u64 {
            return Err(WalError::malformed(at, "the record is shorter than its header"));
        }
        let room = PAGE - offset;
        if length <= room {
            let stop = (at + length).next_multiple_of(8);
            if stop > end {
                return Err(incomplete());
            }
            // Compute the index again: if this returned a part of
            // `page`, that borrow would last for the whole function.
            let index = buffer_index(self.start, at);
            return Ok(Span { bytes: &self.buffer[index..][..to_index(length)], end: stop });
        }
        if length > end.saturating_sub(at) {
            return Err(incomplete());
        }
        let stop = self.assemble(at, end, length)?;
        let stop = stop.next_multiple_of(8);
        if stop > end {
            return Err(incomplete());
        }
        Ok(Span { bytes: &self.scratch, end: stop })
    }

    /// Assembles the `length` bytes of the record at `at` from its pages. Returns the end of the record.
    fn assemble(&mut self, at: u64, end: u64, length: u64) -> Result<u64, WalError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let first = self.page(at, end, Entry::Inside)?;
        scratch.extend_from_slice(&first[position_in_page(at)..]);
        let mut address = at - at % PAGE;
        let stop = loop {
            let left = length - scratch.len() as u64;
            address += PAGE;
            if address >= end {
                return Err(WalError::malformed(at, "the record does not end where the log does"));
            }
            let header = self.header_length(address);
            let page = self.page(address, end, Entry::Continued(left))?;
            let here = left.min(PAGE - header);
            scratch.extend_from_slice(&page[to_index(header)..][..to_index(here)]);
            if here == left {
                break address + header + here;
            }
        };
        self.scratch = scratch;
        Ok(stop)
    }

    /// Checks the header of the page that contains `position` and returns the page.
    fn page(&mut self, position: u64, end: u64, entry: Entry) -> Result<&[u8], WalError> {
        let address = position - position % PAGE;
        let buffered = self.start..self.start + self.buffer.len() as u64;
        if !buffered.contains(&address) {
            self.load(address, end)?;
        }
        let index = buffer_index(self.start, address);
        if self.checked != Some(address) {
            let header = Header::read(&self.buffer[index..]).ok_or(WalError::Gap { at: Lsn(address) })?;
            self.check(&header, address, entry)?;
            self.checked = Some(address);
        }
        Ok(&self.buffer[index..][..to_index(PAGE)])
    }

    /// Reads the page at `address` and some of the following pages, as far as the log goes.
    fn load(&mut self, address: u64, end: u64) -> Result<(), WalError> {
        let segment = address / self.segment_size;
        let stop = self.next_segment(address).min(end.next_multiple_of(PAGE)).min(address + CHUNK);
        if self.file.as_ref().is_none_or(|(open, _)| *open != segment) {
            self.file = None;
            let file = self.folder.file(self.segment_name(segment)).map_err(|source| WalError::Io {
                verb: "open",
                path: self.path.join(self.segment_name(segment)),
                source,
            })?;
            self.file = Some((segment, file));
        }
        self.buffer.resize(to_index(stop.saturating_sub(address)), 0);
        self.start = address;
        let offset = address % self.segment_size;
        let read = match &self.file {
            Some((_, file)) => file.read_exact_at(&mut self.buffer, offset),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        read.map_err(|source| {
            self.buffer.clear();
            WalError::Io { verb: "read", path: self.path.join(self.segment_name(segment)), source }
        })
    }

    /// Checks the header of the page at `address`.
    fn check(&self, header: &Header, address: u64, entry: Entry) -> Result<(), WalError> {
        let malformed = |what| Err(WalError::malformed(address, what));
        if header.address != address {
            return Err(WalError::Gap { at: Lsn(address) });
        }
        if header.magic != self.magic {
            return Err(WalError::Magic(header.magic));
        }
        if header.timeline != 1 {
            return malformed("the page is of another timeline");
        }
        let long = self.header_length(address) == LONG_HEADER;
        let overwritten = server::Major(self.major()).wal_overwritten_page();
        if header.flags & !(2 * overwritten - 1) != 0 || (header.flags & LONG != 0) != long {
            return malformed("the page has unknown flags");
        }
        if long && (header.system, u64::from(header.segment_size)) != (self.system, self.segment_size) {
            return malformed("the segment is of another server");
        }
        let continues = header.flags & CONTINUES != 0;
        match entry {
            Entry::Continued(_) if header.flags & overwritten != 0 => {
                malformed("a crash has lost the rest of the record before this page")
            }
            Entry::Continued(left) if !continues || u64::from(header.remaining) != left => {
                malformed("the page does not continue the record before it")
            }
            Entry::AtStart if continues || header.remaining != 0 || header.flags & overwritten != 0 => {
                malformed("the page continues a record that was not seen")
            }
            _ => Ok(()),
        }
    }

    /// Reads the long header at the start of a segment.
    fn long_header(&mut self, segment: u64) -> Result<Header, WalError> {
        let address = segment * self.segment_size;
        self.load(address, address + PAGE)?;
        let header = Header::read(&self.buffer).ok_or(WalError::Gap { at: Lsn(address) })?;
        self.buffer.clear();
        // If the server created this segment in advance, it is empty or contains old pages.
        if header.address != address || header.magic == 0 {
            return Err(WalError::Gap { at: Lsn(address) });
        }
        if major(header.magic).is_none() {
            return Err(WalError::Magic(header.magic));
        }
        if header.flags & LONG == 0 || u64::from(header.segment_size) != self.segment_size {
            return Err(WalError::malformed(address, "the segment size is not that of the file"));
        }
        if u64::from(header.page_size) != PAGE {
            return Err(WalError::malformed(address, "the page size is not 8192"));
        }
        Ok(header)
    }

    /// Returns the header length, in bytes, of the page that contains `position`.
    fn header_length(&self, position: u64) -> u64 {
        if position % self.segment_size < PAGE { LONG_HEADER } else { SHORT_HEADER }
    }

    /// Returns the file name of a segment: timeline 1, then the segment's number in two parts. Source: `XLogFileName`.
    fn segment_name(&self, segment: u64) -> String {
        let high_unit = (1 << 32) / self.segment_size;
        format!("{:08X}{:08X}{:08X}", 1, segment / high_unit, segment % high_unit)
    }
}

/// Returns the size of the segment files in `folder`, all of which must belong to timeline 1. `path` is the folder's
/// path.
fn segment_size(folder: &Directory, path: &Path) -> Result<u64, WalError> {
    let io = |source| WalError::Io { verb: "read", path: path.to_owned(), source };
    let mut size = None;
    for (name, kind) in folder.entries().map_err(io)? {
        let name = name.to_string_lossy().into_owned();
        let is_segment = name.len() == 24 && name.bytes().all(|digit| digit.is_ascii_hexdigit());
        let has_history = Path::new(&name).extension().is_some_and(|extension| extension == "history");
        if has_history || (is_segment && !name.starts_with("00000001")) {
            return Err(WalError::Timeline(name));
        }
        if is_segment && kind == FileKind::File {
            match folder.file(&name).and_then(|file| file.metadata()) {
                Ok(metadata) => size = Some(metadata.len()),
                // The server removed or renamed the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io(error)),
            }
        }
    }
    size.filter(|size| size.is_power_of_two() && (1 << 20..=1 << 30).contains(size))
        .ok_or_else(|| WalError::malformed(0, "pg_wal has no segments of a known size"))
}

/// Returns the offset of a position in its page.
fn position_in_page(position: u64) -> usize {
    to_index(position % PAGE)
}

/// Returns the index of `position` in a buffer that begins at `start`.
fn buffer_index(start: u64, position: u64) -> usize {
    to_index(position - start)
}

/// Converts a length or an offset to an index. Records and segments are smaller than 4 GiB.
fn to_index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
