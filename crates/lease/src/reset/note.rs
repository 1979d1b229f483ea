//! Stores a template's catalog as a note in the cache entry, which saves the next server using this entry from reading
//! the catalog again.
//!
//! ```text
//! pgfresh catalog IDENTITY SUBJECT CHECKSUM     entry's identity; CRC-32C in hex of the subject and of the JSON
//! {…}                                           JSON
//! ```

use serde::{Deserialize, Serialize};

use crate::reset::catalog::TemplateCatalog;

/// Maximum length of a note, in bytes. Reading a longer note would take as long as reading the catalog itself.
const LONGEST: usize = 4 << 20;

#[derive(Serialize)]
struct Written<'a> {
    catalog: &'a TemplateCatalog,
    leaves_traces: bool,
}

#[derive(Deserialize)]
struct Read {
    catalog: TemplateCatalog,
    leaves_traces: bool,
}

/// Returns a note's text, or `None` if the text would be too long. The first line of `subject` is the cache entry's
/// identity.
pub(crate) fn write(catalog: &TemplateCatalog, leaves_traces: bool, subject: &str) -> Option<String> {
    let body = serde_json::to_string(&Written { catalog, leaves_traces }).ok()?;
    (body.len() <= LONGEST).then(|| format!("{}\n{body}", header(subject, &body)))
}

/// Parses a note about this subject. Returns the catalog and whether using a copy may leave traces in a backend, or
/// `None` if the note is damaged or has a different subject.
pub(crate) fn read(text: &str, subject: &str) -> Option<(TemplateCatalog, bool)> {
    let (first, body) = text.split_once('\n')?;
    if first != header(subject, body) {
        return None;
    }
    let Read { catalog, leaves_traces } = serde_json::from_str(body).ok()?;
    Some((catalog, leaves_traces))
}

fn header(subject: &str, body: &str) -> String {
    let [subject_sum, body_sum] = [subject, body].map(|text| crc32c::crc32c(text.as_bytes()));
    let identity = subject.lines().next().unwrap_or_default();
    format!("pgfresh catalog {identity} {subject_sum:08x} {body_sum:08x}")
}

/// Encodes bytes in JSON as Base64.
pub(crate) mod base64 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = <&str>::deserialize(from)?;
        STANDARD.decode(text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reset::catalog::{Reason, Seed, Table};

    const SUBJECT: &str = "entry\nqueries";

    fn catalog(rows: Seed) -> TemplateCatalog {
        let table = Table {
            name: "public.\"ä\"".to_owned(),
            relations: vec![16384],
            rows,
            referenced: true,
            unlogged: false,
            undeletable: true,
        };
        TemplateCatalog { major: 15, tables: [(16384, table)].into(), ..TemplateCatalog::default() }
    }

    proptest! {
        #[test]
        fn catalog_note_round_trips(rows: Vec<u8>, leaves_traces: bool) {
            for rows in [Seed::Empty, Seed::Rows(rows), Seed::Fixed(Reason::Large)] {
                let catalog = catalog(rows);
                let text = write(&catalog, leaves_traces, SUBJECT).unwrap();
                let (noted, functions) = read(&text, SUBJECT).unwrap();
                prop_assert_eq!(functions, leaves_traces);
                prop_assert!(noted.has_same_note(&catalog));
            }
        }

        #[test]
        fn a_damaged_note_is_none(rows: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let text = write(&catalog(Seed::Rows(rows)), true, SUBJECT).unwrap();
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let damaged = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(read(&damaged, SUBJECT).is_some(), damaged == text);
            prop_assert!(read(&text[..text.floor_char_boundary(at)], SUBJECT).is_none());
        }
    }

    #[test]
    fn a_note_about_another_subject_is_none() {
        let text = write(&catalog(Seed::Empty), false, SUBJECT).unwrap();
        for other in ["entry", "entry\nother queries", "other\nqueries"] {
            assert!(read(&text, other).is_none(), "{other}");
        }
    }

    #[test]
    fn oversized_catalog_writes_no_note() {
        assert!(write(&catalog(Seed::Rows(vec![0; LONGEST])), false, SUBJECT).is_none());
    }
}
