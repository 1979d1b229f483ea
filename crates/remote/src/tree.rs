//! Writes and parses the tree of a template.
//!
//! A tree lists each file's frames and each frame's position in its pack. It is stored as one compressed blob.
//!
//! ```text
//! pgfresh tree 1
//! pack SHA256 BYTES
//! frame PACK OFFSET LENGTH RAW BLAKE3
//! file FRAME FRAME …                      in the manifest's order; an empty file has no frames
//! manifest BYTES
//! about BYTES
//!
//! …                                       the manifest and the description
//! ```
//! The tree isn't signed, because it only determines where the bytes are. The signed manifest determines whether they
//! are the right bytes.

use std::io::Read;

use crate::digest::{Blob, BlobDigest, parse_hex};
use crate::error::StoreError;

/// Maximum size of a compressed tree, in bytes. A 60 GB template has a tree of about this size.
///
/// The limit protects the reader's memory. The reader has to decompress a tree before it can check that the
/// tree belongs to the signed head. Decompression takes about ten times as much memory as the text's size.
pub(crate) const LONGEST_TREE: u64 = 8 << 20;
const LONGEST_TEXT: u64 = 4 * LONGEST_TREE;
/// Maximum size of a frame before compression, in bytes.
pub(crate) const LARGEST_FRAME: usize = 256 * 1024;
/// Reason in the error about an oversized tree.
const TOO_LONG: &str = "it is too long";
/// The first line of a tree.
const HEADER: &str = "pgfresh tree 1";
/// The compression level, which is also zstd's default.
pub(crate) const LEVEL: i32 = 3;

/// A frame's position in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedFrame {
    /// The pack's index in the tree.
    pub(crate) pack: usize,
    pub(crate) offset: u64,
    /// Compressed size in bytes.
    pub(crate) length: usize,
    /// Uncompressed size in bytes.
    pub(crate) raw: usize,
    /// The BLAKE3 digest of the uncompressed bytes.
    pub(crate) digest: [u8; 32],
}

/// A template's files, each a sequence of frames.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FrameTree {
    pub(crate) packs: Vec<Blob>,
    pub(crate) frames: Vec<PackedFrame>,
    /// The frame indexes of each file.
    pub(crate) files: Vec<Vec<usize>>,
}

/// A tree together with its template's manifest and description.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TreeDocument {
    pub(crate) tree: FrameTree,
    pub(crate) manifest: String,
    pub(crate) about: String,
}

impl TreeDocument {
    /// Encodes and compresses the tree.
    ///
    /// # Errors
    /// Returns an error if the tree is larger than [`Self::parse`] accepts.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        let text = self.to_text();
        let bytes =
            zstd::stream::encode_all(text.as_bytes(), LEVEL).map_err(|error| StoreError::broken(&error))?;
        if text.len() as u64 > LONGEST_TEXT || bytes.len() as u64 > LONGEST_TREE {
            return Err(StoreError::Refused(TOO_LONG.to_owned()));
        }
        Ok(bytes)
    }

    fn to_text(&self) -> String {
        let Self { tree, manifest, about } = self;
        let mut text = format!("{HEADER}\n");
        for Blob { digest, bytes } in &tree.packs {
            text.push_str(&format!("pack {digest} {bytes}\n"));
        }
        for PackedFrame { pack, offset, length, raw, digest } in &tree.frames {
            let digest = blake3::Hash::from(*digest);
            text.push_str(&format!("frame {pack} {offset} {length} {raw} {digest}\n"));
        }
        for file in &tree.files {
            text.push_str("file");
            for frame in file {
                text.push_str(&format!(" {frame}"));
            }
            text.push('\n');
        }
        text.push_str(&format!("manifest {}\nabout {}\n\n{manifest}{about}", manifest.len(), about.len()));
        text
    }

    /// Parses the output of [`Self::to_bytes`].
    ///
    /// # Errors
    /// Returns the reason, worded as the end of a sentence, if `bytes` isn't a valid tree.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let foreign = "it is not a template tree";
        let mut text = String::new();
        let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|_| foreign)?;
        let length = decoder.take(LONGEST_TEXT + 1).read_to_string(&mut text).map_err(|_| foreign)?;
        if length as u64 > LONGEST_TEXT {
            return Err(TOO_LONG);
        }
        let (lines, texts) = text.split_once("\n\n").ok_or(foreign)?;
        let mut lines = lines.lines();
        if lines.next() != Some(HEADER) {
            return Err(foreign);
        }
        let (mut tree, mut lengths) = (FrameTree::default(), (None, None));
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "pack" => tree.packs.push(pack(rest).ok_or(foreign)?),
                "frame" => tree.frames.push(frame(rest, &tree.packs).ok_or("a frame is in no pack")?),
                "file" => tree.files.push(file(rest, tree.frames.len()).ok_or("a file has no frames")?),
                "manifest" => lengths.0 = rest.parse::<usize>().ok(),
                "about" => lengths.1 = rest.parse::<usize>().ok(),
                _ => return Err(foreign),
            }
        }
        let (Some(manifest), Some(about)) = lengths else { return Err(foreign) };
        let whole = texts.split_at_checked(manifest).filter(|(_, rest)| rest.len() == about);
        let (manifest, about) = whole.ok_or(foreign)?;
        Ok(Self { tree, manifest: manifest.to_owned(), about: about.to_owned() })
    }
}

fn pack(text: &str) -> Option<Blob> {
    let (digest, bytes) = text.split_once(' ')?;
    Some(Blob { digest: digest.parse::<BlobDigest>().ok()?, bytes: bytes.parse().ok()? })
}

/// Parses a frame. Returns `None` if it isn't inside its pack.
fn frame(text: &str, packs: &[Blob]) -> Option<PackedFrame> {
    let mut words = text.splitn(5, ' ');
    let pack: usize = words.next()?.parse().ok()?;
    let offset: u64 = words.next()?.parse().ok()?;
    let length: usize = words.next()?.parse().ok()?;
    let raw: usize = words.next()?.parse().ok()?;
    let digest = parse_hex(words.next()?)?;
    // Compression can make a frame longer, because incompressible data grows slightly.
    let sensible = (1..=LARGEST_FRAME).contains(&raw) && (1..=2 * LARGEST_FRAME).contains(&length);
    let end = offset.checked_add(length as u64)?;
    (sensible && end <= packs.get(pack)?.bytes).then_some(PackedFrame { pack, offset, length, raw, digest })
}

fn file(text: &str, frames: usize) -> Option<Vec<usize>> {
    let numbers = text.split(' ').filter(|word| !word.is_empty());
    numbers.map(|word| word.parse().ok().filter(|number| *number < frames)).collect()
}

impl FrameTree {
    /// Returns true if the frames of each file add up to the file's size in `sizes`.
    pub(crate) fn makes(&self, sizes: impl ExactSizeIterator<Item = u64>) -> bool {
        let size = |file: &Vec<usize>| file.iter().map(|number| self.frames[*number].raw as u64).sum::<u64>();
        sizes.len() == self.files.len() && self.files.iter().map(size).eq(sizes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trees() -> impl Strategy<Value = TreeDocument> {
        let packs = prop::collection::vec((any::<[u8; 8]>(), 1_u64..1 << 40), 1..4);
        let frames = prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                any::<prop::sample::Index>(),
                1..=LARGEST_FRAME,
                any::<[u8; 32]>(),
            ),
            1..6,
        );
        let files = prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0..4);
        (packs, frames, files, "(.|\n){0,60}", "(.|\n){0,60}").prop_map(
            |(packs, frames, files, manifest, about)| {
                let packs: Vec<_> = packs
                    .into_iter()
                    .map(|(seed, bytes)| Blob { digest: BlobDigest::of(&seed), bytes })
                    .collect();
                let frames: Vec<_> = frames
                    .into_iter()
                    .map(|(pack, place, raw, digest)| {
                        let pack = pack.index(packs.len());
                        let length = raw.min(usize::try_from(packs[pack].bytes).unwrap());
                        let room = packs[pack].bytes - length as u64 + 1;
                        let offset = place.index(usize::try_from(room).unwrap()) as u64;
                        PackedFrame { pack, offset, length, raw, digest }
                    })
                    .collect();
                let files =
                    files.into_iter().map(|file| file.iter().map(|at| at.index(frames.len())).collect());
                TreeDocument { tree: FrameTree { packs, files: files.collect(), frames }, manifest, about }
            },
        )
    }

    proptest! {
        #[test]
        fn tree_document_round_trips(document in trees()) {
            let bytes = document.to_bytes().unwrap();
            prop_assert_eq!(TreeDocument::parse(&bytes), Ok(document));
        }

        #[test]
        fn mutated_tree_is_refused_or_remains_consistent(
            document in trees(), at in any::<prop::sample::Index>(), letter in any::<char>(), raw in any::<bool>(),
        ) {
            let bytes = if raw {
                let mut bytes = document.to_bytes().unwrap();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << (letter as u32 % 8);
                bytes
            } else {
                let mut text: Vec<char> = document.to_text().chars().collect();
                let at = at.index(text.len());
                text[at] = letter;
                zstd::stream::encode_all(text.iter().collect::<String>().as_bytes(), 1).unwrap()
            };
            if let Ok(TreeDocument { tree, .. }) = TreeDocument::parse(&bytes) {
                for frame in &tree.frames {
                    prop_assert!(frame.offset + frame.length as u64 <= tree.packs[frame.pack].bytes);
                    prop_assert!(frame.raw <= LARGEST_FRAME);
                }
                prop_assert!(tree.files.iter().flatten().all(|number| *number < tree.frames.len()));
            }
        }
    }

    #[test]
    fn tree_refuses_decompression_bomb() {
        let bomb = zstd::stream::encode_all(std::io::repeat(b'x').take(LONGEST_TEXT + 10), 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert_eq!(TreeDocument::parse(&bomb), Err("it is too long"));
    }

    #[test]
    fn tree_too_long_to_read_is_not_pushed() {
        let manifest = |length| "x".repeat(usize::try_from(length).unwrap());
        let document = |manifest| TreeDocument { tree: FrameTree::default(), manifest, about: String::new() };
        let largest = document(manifest(LONGEST_TEXT - 100));
        assert_eq!(TreeDocument::parse(&largest.to_bytes().unwrap()), Ok(largest));
        let refused = document(manifest(LONGEST_TEXT)).to_bytes().unwrap_err();
        assert_eq!(refused.why(), "it is too long");
    }
}
