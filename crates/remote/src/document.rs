//! Writes and parses the head of a template in a remote.
//!
//! A machine finds a template by reading its head, a small text file that contains the signed lines, their
//! signature, and the digest of the template's tree (see [`crate::tree`]). The digest line itself isn't signed.
//!
//! ```text
//! pgfresh remote 1
//! tree SHA256 BYTES
//! pgfresh template 1
//! …                                       four more lines, see `storage`
//! untrusted comment: …                    and three more, in minisign's format
//! ```

use crate::digest::Blob;
use crate::tree::LONGEST_TREE;

/// Maximum size of a head, in bytes.
pub(crate) const LONGEST_HEAD: u64 = 8 << 10;
/// The first line of a head.
const HEADER: &str = "pgfresh remote 1";
/// Start of the first line in every version of the format.
const ANY_HEADER: &str = "pgfresh remote ";
/// The number of lines covered by the signature.
const SIGNED_LINES: usize = 5;

/// A parsed head, before its signature is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeadDocument {
    pub(crate) tree: Blob,
    pub(crate) head: String,
    pub(crate) signature: String,
}

impl HeadDocument {
    pub(crate) fn to_text(&self) -> String {
        let Self { tree, head, signature } = self;
        format!("{HEADER}\ntree {} {}\n{head}{signature}", tree.digest, tree.bytes)
    }

    /// Parses the output of [`Self::to_text`].
    ///
    /// # Errors
    /// Returns the reason, worded as the end of a sentence, if `text` isn't a valid head.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let foreign = "it is not a template head";
        if text.starts_with(ANY_HEADER) && !text.starts_with(HEADER) {
            return Err("a newer pgfresh has written it");
        }
        let rest = text.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix("\ntree ")).ok_or(foreign)?;
        let (line, rest) = rest.split_once('\n').ok_or(foreign)?;
        let (digest, bytes) = line.split_once(' ').ok_or(foreign)?;
        let tree = Blob { digest: digest.parse()?, bytes: bytes.parse().map_err(|_| foreign)? };
        if tree.bytes > LONGEST_TREE {
            return Err("its tree is too long");
        }
        let end = rest.match_indices('\n').nth(SIGNED_LINES - 1).ok_or(foreign)?.0 + 1;
        let (head, signature) = rest.split_at(end);
        Ok(Self { tree, head: head.to_owned(), signature: signature.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::BlobDigest;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let document = HeadDocument {
            tree: Blob { digest: BlobDigest::of(b"x"), bytes: 77 },
            head: "pgfresh template 1\nfingerprint a\nmanifest b\nabout c\nsigned 1\n".to_owned(),
            signature: "untrusted comment: d\ne\ntrusted comment: f\ng\n".to_owned(),
        };
        let text = document.to_text();
        assert_eq!(HeadDocument::parse(&text), Ok(document));
        for cut in 0..text.len() - 50 {
            assert!(HeadDocument::parse(&text[..cut]).is_err(), "{cut}");
        }
        assert_eq!(HeadDocument::parse(&text.replacen('1', "2", 1)), Err("a newer pgfresh has written it"));
        let of_tree = |bytes: u64| text.replacen(" 77\n", &format!(" {bytes}\n"), 1);
        assert!(HeadDocument::parse(&of_tree(LONGEST_TREE)).is_ok());
        assert_eq!(HeadDocument::parse(&of_tree(LONGEST_TREE + 1)), Err("its tree is too long"));
    }
}
