//! Reads and writes recordings: files that contain the statements of a suite.
//!
//! The format is JSON with one line for each test and each statement. Users can also write such a file themselves, for
//! example from `pg_stat_statements`. Only `format`, `statements` and the `text` of each statement are required.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pgwire::NormalizedStatement;
use plans::{BoundStatement, BoundValue, SuiteStatement};
use serde::{Deserialize, Serialize};
use storage::Cache;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes.
const MOST_BYTES: u64 = 256_000_000;
/// Maximum number of statements in a file. Statements that differ only in their values count separately.
const MOST_STATEMENTS: usize = 100_000;
/// Maximum number of parameters in a statement, which is the protocol's limit.
const MOST_PARAMETERS: usize = 65_535;

/// The distinct statements that a suite sent in one or several runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteRecording {
    /// When the latest run ended, in seconds since 1970. 0 if the file doesn't contain the time.
    pub recorded: u64,
    /// Command lines of the runs. Empty if the file doesn't contain them.
    pub commands: Vec<String>,
    /// Statements, each with the values from a few runs.
    pub statements: Vec<SuiteStatement>,
    /// Phrases about statements that the recording lacks, such as "3 runs of EXECUTE, whose statements were prepared in
    /// SQL".
    pub missing: Vec<String>,
}

/// Reason why a file isn't a valid recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The cache can't be read.
    #[error(transparent)]
    Cache(#[from] storage::FileError),
    /// The text isn't JSON, or a field is missing or has the wrong type.
    #[error("it is not a recording of a suite's statements: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A different version of pgfresh wrote the file, in this format version.
    #[error("its format is {0}, and this pgfresh reads format {FORMAT}")]
    Format(u32),
    /// A field has an impossible value.
    #[error("statement {number}: {reason}")]
    Invalid {
        /// Position of the statement in the file, starting at 1.
        number: usize,
        /// Why the value is impossible.
        reason: &'static str,
    },
    /// The file is too large or contains too many statements.
    #[error("it has more than {MOST_STATEMENTS} statements")]
    TooMany,
}

/// A recording as the file contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(rename = "format")]
    _format: u32,
    #[serde(default)]
    recorded: u64,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    missing: Vec<String>,
    #[serde(default)]
    tests: Vec<String>,
    statements: Vec<Statement>,
}

/// The format version, which determines whether pgfresh understands the other fields.
#[derive(Deserialize)]
struct Head {
    format: Option<u32>,
}

/// A statement in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Parameter>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    runs: u64,
    /// How often the client executed the statement as a named prepared statement.
    #[serde(default, skip_serializing_if = "is_zero")]
    prepared_runs: u64,
    /// Indexes into the list of tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tests: Vec<usize>,
}

/// A parameter in a file. Its value is either `text` or, in hexadecimal digits, `binary`. Without either, it is NULL.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    #[serde(default, rename = "type", skip_serializing_if = "is_zero_oid")]
    type_oid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_oid(oid: &u32) -> bool {
    *oid == 0
}

impl SuiteRecording {
    /// Reads a recording from a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, is too large, or isn't a valid recording.
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let mut text = String::new();
        File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MOST_BYTES {
            let message = format!("it is larger than {}", storage::human_bytes(MOST_BYTES));
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message).into());
        }
        Self::parse(&text)
    }

    /// Reads all cached recordings of the project in `folder` and merges them. The cache has one recording for each
    /// test command. Returns `None` if it has none. Ignores recordings that a different version of pgfresh wrote.
    ///
    /// # Errors
    ///
    /// Returns an error if the cache can't be read.
    pub fn of_project(cache: &Cache, folder: &Path) -> Result<Option<Self>, RecordingError> {
        let paths = cache.recordings(folder)?;
        let recordings = paths.iter().filter_map(|path| {
            Self::read(path)
                .inspect_err(
                    |error| tracing::debug!(%error, path = %path.display(), "could not use a recording"),
                )
                .ok()
        });
        Ok(recordings.reduce(Self::merge))
    }

    /// Saves the recording in the cache for the project in `folder`. Replaces the previous recording of the same
    /// command.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written.
    pub fn keep(&self, cache: &Cache, folder: &Path) -> Result<(), RecordingError> {
        Ok(cache.keep_recording(folder, &self.commands.join("\n"), &self.to_json())?)
    }

    /// Returns true if the cache has a recording of the same command for the project in `folder`.
    #[must_use]
    pub fn is_kept(&self, cache: &Cache, folder: &Path) -> bool {
        cache.has_recording(folder, &self.commands.join("\n"))
    }

    /// Parses the text of a recording.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a valid recording.
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        let format = serde_json::from_str::<Head>(text).ok().and_then(|head| head.format);
        if let Some(format) = format.filter(|format| *format != FORMAT) {
            return Err(RecordingError::Format(format));
        }
        let Contents { recorded, commands, missing, tests, statements, .. } = serde_json::from_str(text)?;
        if statements.len() > MOST_STATEMENTS {
            return Err(RecordingError::TooMany);
        }
        let statements = statements.into_iter().enumerate().map(|(index, statement)| {
            let invalid = |reason| RecordingError::Invalid { number: index + 1, reason };
            statement.into_suite(&tests).map_err(invalid)
        });
        Ok(Self { recorded, commands, missing, statements: statements.collect::<Result<_, _>>()? })
    }

    /// Returns the recording in its file format.
    ///
    /// # Panics
    ///
    /// Never: all fields can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut numbers = HashMap::new();
        let mut tests = Vec::new();
        for test in self.statements.iter().flat_map(|statement| &statement.tests) {
            numbers.entry(test.as_str()).or_insert_with(|| {
                tests.push(json(test));
                tests.len() - 1
            });
        }
        let statements = self.statements.iter().map(|statement| json(&Statement::of(statement, &numbers)));
        let lines = |lines: Vec<String>| {
            if lines.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", lines.join(",\n")) }
        };
        format!(
            "{{\"format\":{FORMAT},\"recorded\":{},\n\"commands\":{},\n\"missing\":{},\n\"tests\":{},\n\"statements\":{}}}\n",
            self.recorded,
            json(&self.commands),
            json(&self.missing),
            lines(tests),
            lines(statements.collect())
        )
    }

    /// Merges two recordings. A statement that is in both gets the tests and runs of both.
    #[must_use]
    fn merge(mut self, other: Self) -> Self {
        let mut indexes: HashMap<BoundStatement, usize> = self
            .statements
            .iter()
            .enumerate()
            .map(|(index, known)| (known.statement.clone(), index))
            .collect();
        for statement in other.statements {
            if let Some(index) = indexes.get(&statement.statement) {
                let known = &mut self.statements[*index];
                known.runs += statement.runs;
                known.tests.extend(statement.tests);
                known.tests.sort_unstable();
                known.tests.dedup();
            } else {
                indexes.insert(statement.statement.clone(), self.statements.len());
                self.statements.push(statement);
            }
        }
        self.recorded = self.recorded.max(other.recorded);
        self.commands.extend(other.commands);
        for sentence in other.missing {
            // Each recording has its own counts, but a sentence without a count says the same for all.
            if sentence.starts_with(|first: char| first.is_ascii_digit()) || !self.missing.contains(&sentence)
            {
                self.missing.push(sentence);
            }
        }
        self
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys are strings")
}

impl Statement {
    fn of(suite: &SuiteStatement, tests: &HashMap<&str, usize>) -> Self {
        let SuiteStatement { statement, runs, tests: names, .. } = suite;
        let BoundStatement { text, parameters, prepared_runs, settings } = statement;
        let mut numbers: Vec<_> = names.iter().map(|name| tests[name.as_str()]).collect();
        numbers.sort_unstable();
        Self {
            text: text.clone(),
            parameters: parameters.iter().map(Parameter::of).collect(),
            settings: settings.iter().cloned().collect(),
            runs: *runs,
            prepared_runs: *prepared_runs,
            tests: numbers,
        }
    }

    fn into_suite(self, names: &[String]) -> Result<SuiteStatement, &'static str> {
        let Self { text, parameters, settings, runs, prepared_runs, tests } = self;
        if parameters.len() > MOST_PARAMETERS {
            return Err("it has more than 65,535 parameters");
        }
        if [&text].into_iter().chain(settings.keys()).chain(settings.values()).any(|text| text.contains('\0'))
        {
            return Err("its text has a zero byte");
        }
        let parameters = parameters.into_iter().map(Parameter::into_bound).collect::<Result<_, _>>()?;
        let tests = tests.into_iter().map(|test| names.get(test).cloned()).collect::<Option<Vec<_>>>();
        let mut tests = tests.ok_or("it has a test beyond the end of the list \"tests\"")?;
        tests.sort_unstable();
        tests.dedup();
        let normalized = NormalizedStatement::whole_text(&text);
        let settings = settings.into_iter().collect();
        let statement = BoundStatement { text, parameters, prepared_runs, settings };
        Ok(SuiteStatement { statement, normalized, runs, tests })
    }
}

impl Parameter {
    fn of(bound: &BoundValue) -> Self {
        let BoundValue { type_oid, format, value } = bound;
        // JSON can't contain invalid UTF-8, so replace it. The server rejects the replaced text just as it rejects the
        // original.
        let text = value.as_ref().filter(|_| *format == 0);
        let binary = value.as_ref().filter(|_| *format != 0);
        Self {
            type_oid: *type_oid,
            text: text.map(|text| String::from_utf8_lossy(text).into_owned()),
            binary: binary.map(|bytes| digits(bytes)),
        }
    }

    fn into_bound(self) -> Result<BoundValue, &'static str> {
        let Self { type_oid, text, binary } = self;
        let (format, value) = match (text, binary) {
            (Some(_), Some(_)) => return Err("a parameter is both text and binary"),
            (Some(text), None) => (0, Some(text.into_bytes())),
            (None, Some(digits)) => {
                (1, Some(bytes(&digits).ok_or("a binary parameter has no hexadecimal digits")?))
            }
            (None, None) => (0, None),
        };
        Ok(BoundValue { type_oid, format, value })
    }
}

/// Writes each byte as two hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
        text.extend([digit(byte >> 4), digit(byte & 15)]);
        text
    })
}

/// Parses pairs of hexadecimal digits. Returns `None` for any other text.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn suite(text: &str, parameters: Vec<BoundValue>, tests: &[&str]) -> SuiteStatement {
        let statement = BoundStatement {
            text: text.to_owned(),
            parameters,
            prepared_runs: 7,
            settings: vec![("search_path".to_owned(), "shop".to_owned())],
        };
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        SuiteStatement { statement, normalized: NormalizedStatement::whole_text(text), runs: 3, tests }
    }

    fn recording(statements: Vec<SuiteStatement>) -> SuiteRecording {
        SuiteRecording {
            recorded: 5,
            commands: vec!["pytest -q".to_owned()],
            statements,
            missing: vec!["m".to_owned()],
        }
    }

    #[test]
    fn merge_repeats_only_sentences_with_counts() {
        let with = |missing: &[&str]| SuiteRecording {
            missing: missing.iter().map(ToString::to_string).collect(),
            ..recording(Vec::new())
        };
        let merged = with(&["2 runs", "names of tests"]).merge(with(&["names of tests", "2 runs"]));
        assert_eq!(merged.missing, ["2 runs", "names of tests", "2 runs"]);
    }

    #[test]
    fn files_have_a_line_for_each_statement() {
        let values = [(23, 1, Some(vec![0, 0, 0, 255])), (0, 0, Some(b"a".to_vec())), (25, 0, None)];
        let values = values.map(|(type_oid, format, value)| BoundValue { type_oid, format, value });
        let written = recording(vec![
            suite("SELECT $1, $2, $3", values.into(), &["a", "b"]),
            suite("SELECT 1", Vec::new(), &["b"]),
        ]);
        let text = written.to_json();
        assert_eq!(
            text,
            r#"{"format":1,"recorded":5,
"commands":["pytest -q"],
"missing":["m"],
"tests":[
"a",
"b"
],
"statements":[
{"text":"SELECT $1, $2, $3","parameters":[{"type":23,"binary":"000000ff"},{"text":"a"},{"type":25}],"settings":{"search_path":"shop"},"runs":3,"prepared_runs":7,"tests":[0,1]},
{"text":"SELECT 1","settings":{"search_path":"shop"},"runs":3,"prepared_runs":7,"tests":[1]}
]}
"#
        );
        assert_eq!(SuiteRecording::parse(&text).unwrap(), written);
    }

    #[test]
    fn short_files_of_people_are_read() {
        let read = SuiteRecording::parse(
            r#"{"format": 1, "statements": [{"text": "SELECT * FROM t WHERE id = 7"}]}"#,
        )
        .unwrap();
        assert_eq!(read.statements[0].normalized, "SELECT * FROM t WHERE id = ?");
        assert_eq!((read.recorded, read.commands.len(), read.statements[0].runs), (0, 0, 0));
    }

    #[test]
    fn wrong_files_are_refused_with_a_reason() {
        let of = |statement: &str| format!(r#"{{"format":1,"tests":["a"],"statements":[{statement}]}}"#);
        for (text, message) in [
            (
                "nonsense".to_owned(),
                "it is not a recording of a suite's statements: expected ident at line 1 column 2",
            ),
            (
                "{}".to_owned(),
                "it is not a recording of a suite's statements: missing field `format` at line 1 column 2",
            ),
            (r#"{"format":2}"#.to_owned(), "its format is 2, and this pgfresh reads format 1"),
            (
                of(r#"{"text":"a","tests":[1]}"#),
                "statement 1: it has a test beyond the end of the list \"tests\"",
            ),
            (of(r#"{"text":"a\u0000"}"#), "statement 1: its text has a zero byte"),
            (
                of(r#"{"text":"a","parameters":[{"binary":"é0"}]}"#),
                "statement 1: a binary parameter has no hexadecimal digits",
            ),
            (
                of(r#"{"text":"a","parameters":[{"binary":"00","text":"a"}]}"#),
                "statement 1: a parameter is both text and binary",
            ),
        ] {
            assert_eq!(SuiteRecording::parse(&text).unwrap_err().to_string(), message, "{text}");
        }
        assert!(
            SuiteRecording::parse(&of(r#"{"text":"a","x":1}"#))
                .unwrap_err()
                .to_string()
                .contains("unknown field `x`")
        );
        let many = vec![r#"{"text":""}"#; MOST_STATEMENTS + 1].join(",");
        assert!(matches!(SuiteRecording::parse(&of(&many)), Err(RecordingError::TooMany)));
    }

    #[test]
    fn endless_files_are_refused() {
        let error = SuiteRecording::read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 256 MB");
    }

    #[test]
    fn recordings_of_two_commands_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::locate(Some(&folder.path().join("cache"))).unwrap();
        assert!(SuiteRecording::of_project(&cache, folder.path()).unwrap().is_none());
        let first =
            recording(vec![suite("SELECT 1", Vec::new(), &["a"]), suite("SELECT 2", Vec::new(), &["a"])]);
        let second =
            recording(vec![suite("SELECT 2", Vec::new(), &["b"]), suite("SELECT 3", Vec::new(), &["b"])]);
        let second = SuiteRecording { commands: vec!["npm test".to_owned()], recorded: 9, ..second };
        for recording in [&first, &second] {
            recording.keep(&cache, folder.path()).unwrap();
        }
        cache.keep_recording(folder.path(), "broken", "{").unwrap();
        let both = SuiteRecording::of_project(&cache, folder.path()).unwrap().unwrap();
        let mut statements: Vec<_> = both
            .statements
            .iter()
            .map(|one| (one.statement.text.as_str(), one.runs, one.tests.concat()))
            .collect();
        statements.sort();
        assert_eq!(
            statements,
            [
                ("SELECT 1", 3, "a".to_owned()),
                ("SELECT 2", 6, "ab".to_owned()),
                ("SELECT 3", 3, "b".to_owned())
            ]
        );
        assert_eq!((both.recorded, both.commands.len()), (9, 2));
    }

    proptest! {
        #[test]
        fn any_statement_comes_back(
            text in "[^\0]*",
            values in prop::collection::vec((any::<u32>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..9))), 0..4),
            tests in prop::collection::btree_set(".*", 0..4),
        ) {
            let values = values.into_iter().map(|(type_oid, value)| {
                BoundValue { type_oid, format: i16::from(value.is_some()), value }
            });
            let tests: Vec<_> = tests.iter().map(String::as_str).collect();
            let written = recording(vec![suite(&text, values.collect(), &tests)]);
            prop_assert_eq!(SuiteRecording::parse(&written.to_json()).unwrap(), written);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            prop_assert!(SuiteRecording::parse(&text).is_err());
        }
    }
}
