//! Stores statements as clients send them: the whole text, the declared types and the bound values.

use std::sync::Arc;

/// A statement as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentStatement {
    /// The whole text. A Query can contain several statements.
    pub text: Arc<str>,
    /// Number of types and the types, as in a Parse message. Empty for a Query.
    types: Arc<[u8]>,
    /// Formats and values, as in a Bind message. Empty for a Query.
    values: Arc<[u8]>,
    /// Number of runs of the client's prepared statement so far, including this one. 0 for a Query and for the unnamed
    /// prepared statement.
    pub prepared_runs: u64,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BoundValue {
    /// OID of the type that the client declared, or 0 if the server determines the type.
    pub type_oid: u32,
    /// 0 for text, 1 for binary.
    pub format: i16,
    /// Value in that format. `None` for NULL.
    pub value: Option<Vec<u8>>,
}

impl SentStatement {
    /// Creates a statement without parameters. Returns `None` if the text isn't UTF-8.
    pub(crate) fn query(text: &[u8]) -> Option<Self> {
        Self::prepared(text, &[])
    }

    /// Creates a prepared statement, which has no values yet. `types` is the part of the Parse message after the text.
    #[must_use]
    pub fn prepared(text: &[u8], types: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.into();
        Some(Self { text, types: types.into(), values: [].into(), prepared_runs: 0 })
    }

    /// Returns a run of this prepared statement. `values` is the part of the Bind message after the names.
    #[must_use]
    pub fn bound(&self, values: &[u8], prepared_runs: u64) -> Self {
        Self { values: values.into(), prepared_runs, ..self.clone() }
    }

    /// Returns this run with another text, such as one of several statements in a Query.
    #[must_use]
    pub fn with_text(&self, text: Arc<str>) -> Self {
        Self { text, ..self.clone() }
    }

    /// Returns the bound values, or `None` if the messages are malformed.
    #[must_use]
    pub fn parameters(&self) -> Option<Vec<BoundValue>> {
        if self.values.is_empty() {
            return Some(Vec::new());
        }
        let mut types = Reader(&self.types);
        let declared = if self.types.is_empty() { 0 } else { types.count()? };
        let types = (0..declared).map(|_| types.oid()).collect::<Option<Vec<_>>>()?;
        let mut bind = Reader(&self.values);
        let formats = bind.count()?;
        let formats = (0..formats).map(|_| bind.short()).collect::<Option<Vec<_>>>()?;
        let count = bind.count()?;
        let value = |index: usize| {
            let format = match formats[..] {
                [] => 0,
                [all] => all,
                _ => *formats.get(index)?,
            };
            bind.value(types.get(index).copied().unwrap_or(0), format)
        };
        (0..count).map(value).collect()
    }

    /// Returns a digest of the text and the values. The digest is the same in all versions of pgfresh, so that a
    /// selection of statements by digest is reproducible.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let hash = blake3::Hasher::new().update(self.text.as_bytes()).update(&self.values).finalize();
        hash.as_bytes().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// Returns the approximate size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.types.len() + self.values.len()
    }
}

/// Reads numbers from the start of a message part.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn chunk<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    fn short(&mut self) -> Option<i16> {
        self.chunk().map(i16::from_be_bytes)
    }

    /// Reads an item count. The protocol limits it to 65535.
    fn count(&mut self) -> Option<usize> {
        self.chunk().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    fn oid(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// Reads a length and as many bytes. The length -1 stands for NULL.
    fn value(&mut self, type_oid: u32, format: i16) -> Option<BoundValue> {
        let length = self.chunk().map(i32::from_be_bytes)?;
        let Ok(length) = usize::try_from(length) else {
            return Some(BoundValue { type_oid, format, value: None });
        };
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(BoundValue { type_oid, format, value: Some(value.to_vec()) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::{Completed, StatementEvent, StatementTracker, encode};

    fn parse(name: &str, text: &[u8], types: &[u32]) -> Vec<u8> {
        let count = u16::try_from(types.len()).unwrap();
        let mut body = [name.as_bytes(), b"\0", text, b"\0", &count.to_be_bytes()].concat();
        body.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
        encode(b'P', &body)
    }

    fn bind(name: &str, formats: &[i16], values: &[Option<Vec<u8>>]) -> Vec<u8> {
        let count = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
        let mut body = [b"\0", name.as_bytes(), b"\0", &count(formats.len())].concat();
        body.extend(formats.iter().flat_map(|format| format.to_be_bytes()));
        body.extend(count(values.len()));
        for value in values {
            let length = value.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap());
            body.extend(length.to_be_bytes());
            body.extend(value.iter().flatten());
        }
        body.extend(count(0));
        encode(b'B', &body)
    }

    /// Returns the statements that a tracker with whole texts reports. The bytes arrive in chunks.
    fn sent(client: &[u8], server: &[u8], chunk: usize) -> Vec<Option<SentStatement>> {
        let (mut tracker, mut sent, now) = (StatementTracker::with_values(), Vec::new(), Instant::now());
        let mut emit = |event| {
            if let StatementEvent::Completed(Completed { sent: statement, .. }) = event {
                sent.push(statement.map(|statement| statement.as_ref().clone()));
            }
        };
        client.chunks(chunk).for_each(|bytes| tracker.observe_client(bytes, now, &mut emit));
        server.chunks(chunk).for_each(|bytes| tracker.observe_server(bytes, now, &mut emit));
        sent
    }

    const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
    const SYNC: &[u8] = b"S\0\0\0\x04";
    const READY: &[u8] = b"Z\0\0\0\x05I";

    fn complete() -> Vec<u8> {
        encode(b'C', b"SELECT 1\0")
    }

    proptest! {
        #[test]
        fn messages_give_back_their_values(
            text in "[a-z $']{0,3000}",
            types in prop::collection::vec(any::<u32>(), 0..4),
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), 0..4),
            formats in prop::sample::select(&[0_usize, 1, 9][..]),
            chunk in 1_usize..400,
        ) {
            let formats: Vec<i16> = [0, 1].into_iter().cycle().take(formats.min(values.len())).collect();
            let client =
                [parse("", text.as_bytes(), &types), bind("", &formats, &values), EXECUTE.into(), SYNC.into()];
            let server = [complete(), READY.to_vec()].concat();
            let sent = sent(&client.concat(), &server, chunk);
            let [Some(sent)] = &sent[..] else { panic!("{sent:?}") };
            prop_assert_eq!(&*sent.text, &text);
            let expected = values.into_iter().enumerate().map(|(index, value)| BoundValue {
                type_oid: types.get(index).copied().unwrap_or(0),
                format: if formats.len() == 1 { formats[0] } else { formats.get(index).copied().unwrap_or(0) },
                value,
            });
            prop_assert_eq!(sent.parameters().unwrap(), expected.collect::<Vec<_>>());
        }

        #[test]
        fn malformed_values_are_none(
            types in prop::collection::vec(any::<u8>(), 0..20),
            values in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let sent = SentStatement::prepared(b"SELECT", &types).unwrap().bound(&values, 0);
            if let Some(parameters) = sent.parameters() {
                let bytes: usize = parameters.iter().filter_map(|one| one.value.as_ref()).map(Vec::len).sum();
                prop_assert!(bytes <= values.len());
            }
        }
    }

    #[test]
    fn runs_of_named_statements_are_counted() {
        let run = |value: &str| [bind("s", &[], &[Some(value.into())]), EXECUTE.into(), SYNC.into()].concat();
        let client = [parse("s", b"SELECT $1", &[23]), run("1"), run("2")].concat();
        let server = [complete(), READY.to_vec(), complete(), READY.to_vec()].concat();
        let sent = sent(&client, &server, usize::MAX);
        let runs: Vec<_> = sent.iter().flatten().map(|one| (one.prepared_runs, one.parameters())).collect();
        let value = |text: &str| Some(vec![BoundValue { type_oid: 23, format: 0, value: Some(text.into()) }]);
        assert_eq!(runs, [(1, value("1")), (2, value("2"))]);
        assert!(sent[0].as_ref().unwrap().digest() != sent[1].as_ref().unwrap().digest());
    }

    #[test]
    fn too_long_and_undecodable_texts_are_not_seen() {
        let query = |text: &[u8]| encode(b'Q', &[text, b"\0"].concat());
        let server = [complete(), READY.to_vec()].concat();
        assert_eq!(sent(&query(b"SELECT '\xff'"), &server, 7), [None]);
        let long = format!("SELECT '{}'", "x".repeat(200_000));
        assert_eq!(sent(&query(long.as_bytes()), &server, 5000).remove(0).unwrap().text.len(), long.len());
        let long = format!("SELECT '{}'", "x".repeat(300_000));
        assert_eq!(sent(&query(long.as_bytes()), &server, 5000), [None]);
    }
}
