//! Parses a client's startup packet, the only packet without a tag.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::ErrorResponse;
use crate::frame::until_zero;

/// Maximum length of a startup packet, in bytes. Source: `MAX_STARTUP_PACKET_LENGTH`.
const LONGEST: usize = 10_000;
/// Codes that replace the version number. The upper half is 1234, and the lower half is 5678 or one of the
/// next numbers. Source: `pqcomm.h`.
pub(crate) const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// A client's startup packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupPacket {
    /// Asks for TLS. The client sends another packet afterwards.
    SslRequest,
    /// Asks for GSSAPI encryption. The client sends another packet afterwards.
    GssRequest,
    /// Asks to cancel the query of the session with this process id and secret.
    Cancel(Vec<u8>),
    /// Asks for a session.
    Startup(Startup),
    /// Asks for a session with a major protocol version other than 3.
    Unsupported(u32),
}

/// A request for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    /// All parameters except the database.
    pub params: StartupParams,
    /// The name of the database, by default the user's name.
    pub database: String,
    /// Whether the client requests a replication session.
    pub replication: bool,
}

/// The parameters of a client's session, except the database. Sessions with equal parameters are
/// interchangeable until their first message. Parameters are equal if they have the same meaning, even if the
/// clients wrote them differently. They are parsed only once, and are cheap to clone, compare and hash.
#[derive(Clone)]
pub struct StartupParams(Arc<Read>);

struct Read {
    version: u32,
    parameters: Vec<u8>,
    settings: Vec<Setting>,
    /// Whether the parameter `options` contains only settings.
    is_all: bool,
    /// Hash of the parameters' meaning, valid only within this process.
    hash: u64,
}

/// The meaning of the parameters, for comparisons.
#[derive(PartialEq, Eq, Hash)]
struct Meaning<'a> {
    version: u32,
    user: Option<&'a [u8]>,
    replication: Option<&'a [u8]>,
    /// The value of `options` if it contains anything other than settings.
    options: Option<&'a [u8]>,
    settings: &'a [Setting],
}

/// The name and value of a setting.
type Setting = (Vec<u8>, Vec<u8>);

impl fmt::Debug for StartupParams {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Read { version, parameters, .. } = &*self.0;
        formatter
            .debug_struct("StartupParams")
            .field("version", version)
            .field("parameters", parameters)
            .finish()
    }
}

impl PartialEq for StartupParams {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.0, &other.0);
        // Compare the bytes first. Since most clients use the same driver, their bytes are usually equal.
        let is_same = || ours.version == theirs.version && ours.parameters == theirs.parameters;
        ours.hash == theirs.hash && (is_same() || ours.meaning() == theirs.meaning())
    }
}

impl Eq for StartupParams {}

impl Hash for StartupParams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl StartupParams {
    /// Creates parameters with these names and values, in protocol 3.0.
    #[must_use]
    pub fn new<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let parameters = parameters.into_iter().flat_map(|(name, value)| [name, "\0", value, "\0"]);
        Self::read(3 << 16, parameters.collect::<String>().into_bytes())
    }

    /// Parses a client's parameters. `version` is the protocol version the client requested: 0x00030000, or
    /// another version with major 3. `parameters` contains name, zero, value, zero, … in the client's order,
    /// but not the database.
    #[must_use]
    pub fn read(version: u32, parameters: Vec<u8>) -> Self {
        let mut read = Read { version, parameters, settings: Vec::new(), is_all: true, hash: 0 };
        (read.settings, read.is_all) = read.read_settings();
        let mut hasher = DefaultHasher::new();
        read.meaning().hash(&mut hasher);
        read.hash = hasher.finish();
        Self(Arc::new(read))
    }

    /// Returns the protocol version the client requested: the major version in the upper 16 bits, the minor version in
    /// the lower 16 bits.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// Returns the names and values as the client sent them, each followed by a zero byte.
    #[must_use]
    pub fn parameters(&self) -> &[u8] {
        &self.0.parameters
    }

    /// Returns the names and values in the client's order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter()
    }

    /// Returns the session's role.
    #[must_use]
    pub fn user(&self) -> Option<&[u8]> {
        self.0.last(b"user")
    }

    /// Returns the session's settings with their names in lower case, in the order that the server
    /// applies them. Those in `options` therefore come first.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.0.settings
    }

    /// Returns true if the parameters could change the setting `name`, which must be in lower case.
    #[must_use]
    pub fn may_set(&self, name: &[u8]) -> bool {
        let says = |text: &[u8]| text.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name));
        let in_words = || self.0.unread_options().is_some_and(says);
        self.settings().iter().any(|(setting, _)| setting == name) || in_words()
    }

    /// Returns true if the parameters request a replication session. An invalid value counts too, because the
    /// server will reject it.
    #[must_use]
    pub fn is_replication(&self) -> bool {
        self.0.last(b"replication").is_some_and(|value| !is_false(value))
    }

    /// Returns true if the parameters include `replication`, with any value.
    #[must_use]
    pub fn has_replication(&self) -> bool {
        self.iter().any(|(name, _)| name == b"replication")
    }

    /// Returns these parameters with one more setting, which overrides earlier values.
    #[must_use]
    pub fn with_setting(&self, (name, value): (&str, &str)) -> Self {
        let added = [name, "\0", value, "\0"].concat();
        Self::read(self.version(), [self.parameters(), added.as_bytes()].concat())
    }

    /// Encodes the startup message for a session in `database`.
    #[must_use]
    pub fn startup_message(&self, database: &str) -> Vec<u8> {
        let length = 4 + 4 + self.parameters().len() + b"database\0".len() + database.len() + 2;
        let mut message = Vec::with_capacity(length);
        message.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        message.extend_from_slice(&self.version().to_be_bytes());
        message.extend_from_slice(self.parameters());
        message.extend_from_slice(b"database\0");
        message.extend_from_slice(database.as_bytes());
        message.extend_from_slice(b"\0\0");
        message
    }
}

impl Read {
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut parts = self.parameters.split(|byte| *byte == 0);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Returns the settings and whether `options` contains only settings.
    fn read_settings(&self) -> (Vec<Setting>, bool) {
        let (mut settings, is_all) = self.last(b"options").map_or((Vec::new(), true), read_options);
        let others =
            self.iter().filter(|(name, _)| !matches!(*name, b"" | b"user" | b"replication" | b"options"));
        settings.extend(others.map(|(name, value)| {
            // Protocol extensions aren't settings.
            let is_extension = name.starts_with(b"_pq_.");
            (if is_extension { name.to_vec() } else { name.to_ascii_lowercase() }, value.to_vec())
        }));
        (settings, is_all)
    }

    /// Returns the value of `options` if it contains anything other than settings.
    fn unread_options(&self) -> Option<&[u8]> {
        self.last(b"options").filter(|_| !self.is_all)
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning {
            version: self.version,
            user: self.last(b"user"),
            replication: self.last(b"replication"),
            options: self.unread_options(),
            settings: &self.settings,
        }
    }

    /// Returns a parameter's last value, which is the one the server uses. The parameter must not be a
    /// setting.
    fn last(&self, parameter: &[u8]) -> Option<&[u8]> {
        self.iter().filter(|(name, _)| *name == parameter).last().map(|(_, value)| value)
    }
}

impl StartupPacket {
    /// Parses the packet at the start of `bytes`. Returns the packet and its length, or `None` if the packet
    /// is incomplete.
    ///
    /// # Errors
    /// Returns the response for the client. Its code is `08P01` if the length or layout is invalid, and
    /// `28000` if the user is missing. It is `22021` if the name of the database isn't UTF-8.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, ErrorResponse> {
        let Some(length) = number(bytes) else { return Ok(None) };
        let length = length as usize;
        if !(8..=LONGEST).contains(&length) {
            return Err(ErrorResponse::violation("invalid length of startup packet"));
        }
        let Some(packet) = bytes.get(4..length) else { return Ok(None) };
        let (code, body) = (number(packet).unwrap_or_default(), &packet[4..]);
        let packet = match code {
            SSL if body.is_empty() => Self::SslRequest,
            GSS if body.is_empty() => Self::GssRequest,
            SSL | GSS => return Err(ErrorResponse::violation("invalid length of encryption request")),
            CANCEL if body.len() > 4 => Self::Cancel(body.to_vec()),
            CANCEL => return Err(ErrorResponse::violation("invalid length of query cancel packet")),
            version if version >> 16 == 3 => Self::Startup(startup(version, body)?),
            version => Self::Unsupported(version),
        };
        Ok(Some((packet, length)))
    }
}

/// Returns the integer in the first four bytes, or `None` if there are fewer bytes.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn startup(version: u32, body: &[u8]) -> Result<Startup, ErrorResponse> {
    let mut parameters = Vec::with_capacity(body.len());
    let (mut database, mut user) = (None, None);
    let mut rest = body;
    while rest.first().is_some_and(|byte| *byte != 0) {
        let layout =
            || ErrorResponse::violation("invalid startup packet layout: expected terminator as last byte");
        let (name, after) = until_zero(rest).ok_or_else(layout)?;
        let (value, after) = until_zero(after).ok_or_else(layout)?;
        if name == b"database" {
            database = Some(value);
        } else {
            parameters.extend_from_slice(&rest[..rest.len() - after.len()]);
        }
        if name == b"user" {
            user = Some(value);
        }
        rest = after;
    }
    if rest != [0] {
        return Err(ErrorResponse::violation(
            "invalid startup packet layout: expected terminator as last byte",
        ));
    }
    let Some(user) = user.filter(|user| !user.is_empty()) else {
        return Err(ErrorResponse::fatal("28000", "no PostgreSQL user name specified in startup packet"));
    };
    let database = String::from_utf8(database.filter(|name| !name.is_empty()).unwrap_or(user).to_vec())
        .map_err(|_| ErrorResponse::fatal("22021", "invalid name of a database: it is not UTF-8"))?;
    let params = StartupParams::read(version, parameters);
    Ok(Startup { replication: params.is_replication(), params, database })
}

/// Returns true if a boolean value is false. Every unique prefix of a word is accepted, as in the server.
/// Source: `parse_bool`.
fn is_false(value: &[u8]) -> bool {
    let word = value.to_ascii_lowercase();
    match &*word {
        b"" | b"o" => false,
        b"0" => true,
        word => [&b"false"[..], b"no", b"off"].iter().any(|no| no.starts_with(word)),
    }
}

/// Returns the settings in the value of `options`, and whether the value contains nothing else. Anything else
/// is left to the server. Source: `process_postgres_switches`, `ParseLongOption`.
fn read_options(options: &[u8]) -> (Vec<Setting>, bool) {
    let words = split(options);
    let mut words = words.iter();
    let (mut settings, mut is_all) = (Vec::new(), true);
    while let Some(word) = words.next() {
        let assignment = if word == b"-c" {
            words.next().map(Vec::as_slice)
        } else {
            word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-c"))
        };
        let assignment = assignment.and_then(|assignment| {
            let (name, value) =
                assignment.split_at_checked(assignment.iter().position(|byte| *byte == b'=')?)?;
            let dashes = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
            Some((name.iter().map(dashes).collect(), value[1..].to_vec()))
        });
        is_all &= assignment.is_some();
        settings.extend(assignment);
    }
    (settings, is_all)
}

/// Splits `text` at white space. A backslash makes the next byte part of a word. Source: `pg_split_opts`.
fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            byte => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(8 + body.len()).unwrap();
        [&length.to_be_bytes(), &code.to_be_bytes(), body].concat()
    }

    fn started(body: &[u8]) -> Result<Startup, ErrorResponse> {
        match StartupPacket::read(&packet(3 << 16, body))? {
            Some((StartupPacket::Startup(startup), _)) => Ok(startup),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_database_is_taken_out() {
        let body = b"user\0me\0database\0shop\0options\0-c pgfresh.template=t\0_pq_.x\0\xff\0\0";
        let startup = started(body).unwrap();
        assert_eq!(startup.database, "shop");
        assert_eq!(startup.params.parameters(), b"user\0me\0options\0-c pgfresh.template=t\0_pq_.x\0\xff\0");
        let read: Vec<_> = startup.params.iter().collect();
        assert_eq!(
            read,
            [(&b"user"[..], &b"me"[..]), (b"options", b"-c pgfresh.template=t"), (b"_pq_.x", b"\xff")]
        );
        assert!(!startup.replication);
        let again = startup.params.startup_message("shop");
        let Ok(Some((StartupPacket::Startup(again), _))) = StartupPacket::read(&again) else {
            panic!("not read again")
        };
        assert_eq!(again, startup);
    }

    #[test]
    fn the_default_database_is_the_user_name() {
        assert_eq!(started(b"user\0me\0\0").unwrap().database, "me");
        assert_eq!(started(b"user\0me\0database\0\0\0").unwrap().database, "me");
        assert!(started(b"user\0me\0replication\0database\0\0").unwrap().replication);
        for value in ["off", "0", "n", "NO", "fal", "of"] {
            let body = format!("user\0me\0replication\0database\0replication\0{value}\0\0");
            assert!(!started(body.as_bytes()).unwrap().replication, "{value}");
        }
    }

    /// Returns a client's parameters with these names and values.
    fn saying(parameters: &[(&str, &str)]) -> StartupParams {
        StartupParams::new([("user", "me")].iter().chain(parameters).copied())
    }

    #[test]
    fn parameters_are_equal_that_mean_the_same() {
        let same = [
            saying(&[("options", r"-c pgfresh.linger=0 -c datestyle=ISO,\ MDY")]),
            saying(&[("options", r"--pgfresh.linger=0 --DateStyle=ISO,\ MDY")]),
            saying(&[("options", "-cPGFRESH.LINGER=0\t -c  datestyle=ISO,\\ M\\DY ")]),
            saying(&[("options", "-c x=y"), ("options", r"-c pgfresh.linger=0"), ("DATESTYLE", "ISO, MDY")]),
            saying(&[("pgfresh.linger", "0"), ("datestyle", "ISO, MDY"), ("user", "me")]),
        ];
        let hash = |params: &StartupParams| {
            let mut hasher = std::hash::DefaultHasher::new();
            params.hash(&mut hasher);
            hasher.finish()
        };
        for params in &same {
            assert_eq!((params, hash(params)), (&same[0], hash(&same[0])));
        }
        let others = [
            saying(&[("options", "-c pgfresh.linger=0")]),
            saying(&[("options", r"-c pgfresh.linger=0 -c datestyle=ISO,\ mdy")]),
            saying(&[("options", r"-c pgfresh.linger=0 -c datestyle=ISO,\ MDY -e")]),
            // The switch `-d` takes an argument, so the text after it isn't a setting.
            saying(&[("options", r"-d -cx=1 -c pgfresh.linger=0 -c datestyle=ISO,\ MDY")]),
            saying(&[("options", r"-d --x=1 -c pgfresh.linger=0 -c datestyle=ISO,\ MDY")]),
            saying(&[("pgfresh.linger", "0"), ("datestyle", "ISO, MDY"), ("user", "you")]),
            saying(&[("pgfresh.linger", "0"), ("datestyle", "ISO, MDY"), ("replication", "off")]),
            StartupParams::read(0x0003_0002, same[0].parameters().to_vec()),
        ];
        for (at, params) in others.iter().enumerate() {
            assert!(*params != same[0] && !others[..at].contains(params), "{params:?}");
        }
        for (params, may_compile) in [
            (saying(&[("options", "-c jit=on")]), true),
            (saying(&[("JIT", "on")]), true),
            (saying(&[("options", r"-c ji\t=on")]), true),
            (saying(&[("options", "-e -cJIT=on")]), true),
            (saying(&[("options", "-e"), ("application_name", "jit")]), false),
            (saying(&[("options", "-c search_path=jit")]), false),
        ] {
            assert_eq!(params.may_set(b"jit"), may_compile, "{params:?}");
        }
        let dashed = saying(&[("options", "--work-mem=1MB")]);
        assert_eq!(dashed.settings(), [(b"work_mem".to_vec(), b"1MB".to_vec())]);
    }

    #[test]
    fn any_minor_version_is_the_servers_to_negotiate() {
        for minor in [0, 1, 2, 9999, 0xffff] {
            let bytes = packet(3 << 16 | minor, b"user\0me\0\0");
            assert!(
                matches!(StartupPacket::read(&bytes), Ok(Some((StartupPacket::Startup(_), _)))),
                "{minor}"
            );
        }
        for version in [2 << 16, 4 << 16, 0, SSL - 2, GSS + 1] {
            let bytes = packet(version, b"user\0me\0\0");
            assert_eq!(
                StartupPacket::read(&bytes),
                Ok(Some((StartupPacket::Unsupported(version), bytes.len())))
            );
        }
    }

    #[test]
    fn malformed_packets_are_refused() {
        for body in [&b""[..], b"\0", b"user\0", b"user\0me\0", b"user\0me\0\0x", b"user\0\0\0", b"x\0y\0\0"]
        {
            assert!(started(body).is_err(), "{body:?}");
        }
        assert!(StartupPacket::read(&[0, 0, 0, 7]).is_err());
        assert!(StartupPacket::read(&[0, 0, 0x27, 0x11]).is_err());
        assert!(StartupPacket::read(&packet(SSL, b"x")).is_err());
        assert!(StartupPacket::read(&packet(CANCEL, b"pid!")).is_err());
        assert!(started(b"user\0me\0database\0\xff\0\0").is_err());
    }

    #[test]
    fn requests_without_a_session_are_distinguished() {
        assert_eq!(StartupPacket::read(&packet(SSL, b"")), Ok(Some((StartupPacket::SslRequest, 8))));
        assert_eq!(StartupPacket::read(&packet(GSS, b"")), Ok(Some((StartupPacket::GssRequest, 8))));
        for length in [8, 36, 260] {
            let key = vec![7; length];
            assert_eq!(
                StartupPacket::read(&packet(CANCEL, &key)),
                Ok(Some((StartupPacket::Cancel(key), 8 + length)))
            );
        }
    }
}
