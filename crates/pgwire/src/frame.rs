//! Parses frames (messages with a tag) in streams and buffers, and encodes them.

/// Size in bytes of a frame's header, which consists of the tag and the length.
pub const HEADER: usize = 5;

/// A complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type of the message.
    pub tag: u8,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// The error for a message with an invalid length, after which the parser can't find the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid message length")]
pub struct MalformedFrame;

impl<'a> Frame<'a> {
    /// Parses the frame at the start of `bytes`. Returns the frame and its length including the header, or
    /// `None` if the frame is incomplete.
    ///
    /// # Errors
    /// Returns [`MalformedFrame`] if the length in the header is below 4, the size of the length field
    /// itself.
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, MalformedFrame> {
        let Some((tag, length)) = Self::header(bytes)? else { return Ok(None) };
        Ok(bytes.get(HEADER..length).map(|body| (Self { tag, body }, length)))
    }

    /// Parses the header at the start of `bytes`. Returns the tag and the frame's length including the
    /// header, or `None` if the header is incomplete.
    ///
    /// # Errors
    /// Returns [`MalformedFrame`] if the length in the header is below 4, the size of the length field
    /// itself.
    pub fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, MalformedFrame> {
        let Some([tag, length @ ..]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        if length < 4 { Err(MalformedFrame) } else { Ok(Some((*tag, 1 + length as usize))) }
    }
}

/// Returns the complete frames in `bytes`, up to the first malformed or incomplete one.
pub fn frames(bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (frame, length) = Frame::first(rest).ok()??;
        rest = &rest[length..];
        Some(frame)
    })
}

/// Encodes a frame.
#[must_use]
pub fn encode(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(body.len() + HEADER);
    bytes.push(tag);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Splits `bytes` at the first zero byte, omitting this byte. If there is no zero byte, the second part is
/// empty.
#[must_use]
pub fn split_zero(bytes: &[u8]) -> (&[u8], &[u8]) {
    until_zero(bytes).unwrap_or((bytes, &[]))
}

/// Splits `bytes` at the first zero byte, omitting this byte. Returns `None` if there is no zero byte.
pub(crate) fn until_zero(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The first part of a frame in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePrefix<'a> {
    /// The type of the message.
    pub tag: u8,
    /// Length of the complete body in bytes.
    pub length: usize,
    /// The first bytes of the body: at least as many as the caller asked for, unless the complete body is
    /// shorter.
    pub body: &'a [u8],
}

/// Splits the bytes of one side of a session into frames. The bytes can arrive in chunks of any size. The
/// decoder buffers only those parts of a body that the caller wants to see.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    header: [u8; HEADER],
    /// Number of header bytes that have already arrived.
    seen: usize,
    /// Number of body bytes that haven't arrived yet.
    left: usize,
    /// Number of body bytes that the caller wants to see, or `None` once the caller has received them.
    wanted: Option<usize>,
    /// Wanted bytes that have already arrived, if they came in several chunks.
    kept: Vec<u8>,
    end: Option<u8>,
    is_malformed: bool,
    has_ended: bool,
}

impl FrameDecoder {
    /// Creates a decoder that stops before the first frame with the tag `end`.
    #[must_use]
    pub fn ending_with(end: u8) -> Self {
        Self { end: Some(end), ..Self::default() }
    }

    /// Calls `see` for each frame in `bytes`, as soon as the decoder has `wanted` bytes of its body or, if
    /// the body is shorter, the complete body. Returns the number of bytes before the end frame, or the total
    /// number of bytes if there is no end frame.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        wanted: impl Fn(u8) -> usize,
        mut see: impl FnMut(FramePrefix<'_>),
    ) -> usize {
        let mut at = 0;
        while !self.is_malformed && !self.has_ended {
            if self.seen == HEADER {
                let body = &bytes[at..at + self.left.min(bytes.len() - at)];
                self.show(body, &mut see);
                at += body.len();
                self.left -= body.len();
                if self.left > 0 {
                    return at;
                }
                self.seen = 0;
            }
            let Some(first) = bytes.get(at) else { return at };
            // The first byte is enough to recognize the end frame, so the caller forwards no part of that
            // frame.
            if self.seen == 0 && self.end == Some(*first) {
                self.has_ended = true;
                return at;
            }
            let count = (HEADER - self.seen).min(bytes.len() - at);
            self.header[self.seen..self.seen + count].copy_from_slice(&bytes[at..at + count]);
            (self.seen, at) = (self.seen + count, at + count);
            if self.seen < HEADER {
                return at;
            }
            match Frame::header(&self.header) {
                Ok(Some((tag, length))) => {
                    self.left = length - HEADER;
                    self.wanted = Some(wanted(tag).min(self.left));
                }
                _ => self.is_malformed = true,
            }
        }
        if self.has_ended { 0 } else { bytes.len() }
    }

    /// Calls `see` if `more` completes the wanted part of the body.
    fn show(&mut self, more: &[u8], see: &mut impl FnMut(FramePrefix<'_>)) {
        let Some(wanted) = self.wanted else { return };
        let (tag, length) = (self.header[0], self.kept.len() + self.left);
        if self.kept.is_empty() && more.len() >= wanted {
            see(FramePrefix { tag, length, body: more });
        } else {
            let missing = wanted - self.kept.len();
            self.kept.extend_from_slice(&more[..more.len().min(missing)]);
            if self.kept.len() < wanted {
                return;
            }
            see(FramePrefix { tag, length, body: &self.kept });
            self.kept.clear();
        }
        self.wanted = None;
    }

    /// Returns true if the last frame is complete, so that another frame can start.
    #[must_use]
    pub fn is_between(&self) -> bool {
        !self.is_malformed && self.seen == 0
    }

    /// Returns true if a frame had an invalid length.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Returns true if the end frame has started.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The tag, length and first bytes of a frame.
    type Seen = (u8, usize, Vec<u8>);

    /// Decodes `bytes` in chunks. For each frame, returns its tag, its length, and the wanted part of its
    /// body.
    fn shown(bytes: &[u8], chunk: usize, wanted: usize) -> (Vec<Seen>, usize, bool) {
        let (mut decoder, mut seen, mut passed) = (FrameDecoder::ending_with(b'X'), Vec::new(), 0);
        for bytes in bytes.chunks(chunk) {
            passed += decoder.decode(
                bytes,
                |_| wanted,
                |FramePrefix { tag, length, body }| {
                    assert!(body.len() <= length && body.len() >= wanted.min(length));
                    seen.push((tag, length, body[..wanted.min(length)].to_vec()));
                },
            );
        }
        (seen, passed, decoder.is_between())
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_show_the_same(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..12)), 0..9),
            tail in prop::collection::vec(any::<u8>(), 0..9),
            chunk in 1_usize..30,
            wanted in 0_usize..9,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(tag, body)| encode(*tag, body)).chain(tail).collect();
            let whole = shown(&bytes, usize::MAX, wanted);
            prop_assert_eq!(&shown(&bytes, chunk, wanted), &whole);
            let until = frames.iter().position(|(tag, _)| *tag == b'X').unwrap_or(frames.len());
            for ((tag, body), (seen, length, prefix)) in frames[..until].iter().zip(&whole.0) {
                prop_assert_eq!((tag, body.len(), &body[..wanted.min(body.len())]), (seen, *length, &prefix[..]));
            }
            prop_assert!(whole.0.len() >= until);
        }
    }

    #[test]
    fn too_small_lengths_are_malformed() {
        let mut decoder = FrameDecoder::default();
        let bytes = b"Q\0\0\0\x03rest";
        assert_eq!(decoder.decode(bytes, |_| 0, |frame| panic!("{frame:?}")), bytes.len());
        assert!(decoder.is_malformed() && !decoder.is_between());
        assert_eq!(Frame::first(bytes), Err(MalformedFrame));
        assert_eq!(Frame::first(b"Q\0\0\0\x05"), Ok(None));
        assert_eq!(frames(b"Z\0\0\0\x05IQ\0").count(), 1);
    }
}
