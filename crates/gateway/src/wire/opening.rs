//! The first thing that a client says: a packet without a tag.

use lease::StartupParams;

use super::options::Wishes;
use super::{Refusal, number};

/// The longest start-up packet. Source: `MAX_STARTUP_PACKET_LENGTH`.
const LONGEST: usize = 10_000;
/// Codes that are no version: 1234 in the upper half, and 5678 and on in the lower. Source: `pqcomm.h`.
pub(super) const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// What a client opens with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It wants TLS or GSSAPI encryption; then it will open anew.
    Encryption,
    /// It wants the session with this process id and secret to be interrupted.
    Cancel(Vec<u8>),
    /// It wants a session.
    Startup(Startup),
}

/// A request for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Startup {
    /// All that it said, less the database.
    pub(crate) params: StartupParams,
    /// The database: by default called as the user.
    pub(crate) database: String,
    /// Whether it will speak of replication rather than of queries.
    pub(crate) replication: bool,
    /// What it asks of pgfresh.
    pub(crate) wishes: Wishes,
}

/// Reads a packet from the beginning of `bytes`. Returns it and its length; `None` if it is not complete yet.
pub(crate) fn opening(bytes: &[u8]) -> Result<Option<(Opening, usize)>, Refusal> {
    let Some(length) = number(bytes) else { return Ok(None) };
    let length = length as usize;
    if !(8..=LONGEST).contains(&length) {
        return Err(Refusal::violation("invalid length of startup packet"));
    }
    let Some(packet) = bytes.get(4..length) else { return Ok(None) };
    let (code, body) = (number(packet).unwrap_or_default(), &packet[4..]);
    let opening = match code {
        SSL | GSS if body.is_empty() => Opening::Encryption,
        SSL | GSS => return Err(Refusal::violation("invalid length of encryption request")),
        CANCEL if body.len() > 4 => Opening::Cancel(body.to_vec()),
        CANCEL => return Err(Refusal::violation("invalid length of query cancel packet")),
        version if version >> 16 == 3 => Opening::Startup(startup(version, body)?),
        version => {
            let (major, minor) = (version >> 16, version & 0xffff);
            let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
            return Err(Refusal::new("0A000", message));
        }
    };
    Ok(Some((opening, length)))
}

fn startup(version: u32, body: &[u8]) -> Result<Startup, Refusal> {
    let mut parameters = Vec::with_capacity(body.len());
    let (mut database, mut user, mut replication) = (None, None, false);
    let mut wishes = Wishes::default();
    let mut rest = body;
    while rest.first().is_some_and(|byte| *byte != 0) {
        let layout = || Refusal::violation("invalid startup packet layout: expected terminator as last byte");
        let (name, after) = until_zero(rest).ok_or_else(layout)?;
        let (value, after) = until_zero(after).ok_or_else(layout)?;
        if name == b"database" {
            database = Some(value);
        } else {
            wishes.consider(name, value)?;
            parameters.extend_from_slice(&rest[..rest.len() - after.len()]);
        }
        match name {
            b"user" => user = Some(value),
            b"replication" => replication = !matches!(value, b"false" | b"off" | b"no" | b"0"),
            _ => {}
        }
        rest = after;
    }
    if rest != [0] {
        return Err(Refusal::violation("invalid startup packet layout: expected terminator as last byte"));
    }
    let Some(user) = user.filter(|user| !user.is_empty()) else {
        return Err(Refusal::new("28000", "no PostgreSQL user name specified in startup packet"));
    };
    let database = String::from_utf8(database.filter(|name| !name.is_empty()).unwrap_or(user).to_vec())
        .map_err(|_| Refusal::new("22021", "invalid name of a database: it is not UTF-8"))?;
    Ok(Startup { params: StartupParams { version, parameters }, database, replication, wishes })
}

fn until_zero(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(8 + body.len()).unwrap();
        [&length.to_be_bytes(), &code.to_be_bytes(), body].concat()
    }

    fn started(body: &[u8]) -> Result<Startup, Refusal> {
        match opening(&packet(3 << 16, body))? {
            Some((Opening::Startup(startup), _)) => Ok(startup),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_database_is_taken_out() {
        let body = b"user\0me\0database\0shop\0options\0-c pgfresh.template=t\0_pq_.x\0\xff\0\0";
        let startup = started(body).unwrap();
        assert_eq!(startup.database, "shop");
        assert_eq!(startup.params.parameters, b"user\0me\0options\0-c pgfresh.template=t\0_pq_.x\0\xff\0");
        assert_eq!(startup.wishes.template.as_deref(), Some("t"));
        assert!(!startup.replication);
        let again = startup.params.startup_message("shop");
        let Ok(Some((Opening::Startup(again), _))) = opening(&again) else { panic!("not read again") };
        assert_eq!(again, startup);
    }

    #[test]
    fn a_database_is_called_as_its_user_unless_told() {
        assert_eq!(started(b"user\0me\0\0").unwrap().database, "me");
        assert_eq!(started(b"user\0me\0database\0\0\0").unwrap().database, "me");
        assert!(started(b"user\0me\0replication\0database\0\0").unwrap().replication);
        assert!(!started(b"user\0me\0replication\0off\0\0").unwrap().replication);
    }

    #[test]
    fn any_minor_version_is_the_servers_to_negotiate() {
        for minor in [0, 1, 2, 9999, 0xffff] {
            let bytes = packet(3 << 16 | minor, b"user\0me\0\0");
            assert!(matches!(opening(&bytes), Ok(Some((Opening::Startup(_), _)))), "{minor}");
        }
        for version in [2 << 16, 4 << 16, 0, SSL - 2, GSS + 1] {
            assert!(opening(&packet(version, b"user\0me\0\0")).is_err(), "{version:x}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for body in [&b""[..], b"\0", b"user\0", b"user\0me\0", b"user\0me\0\0x", b"user\0\0\0", b"x\0y\0\0"]
        {
            assert!(started(body).is_err(), "{body:?}");
        }
        assert!(opening(&[0, 0, 0, 7]).is_err());
        assert!(opening(&[0, 0, 0x27, 0x11]).is_err());
        assert!(opening(&packet(SSL, b"x")).is_err());
        assert!(opening(&packet(CANCEL, b"pid!")).is_err());
        assert!(started(b"user\0me\0database\0\xff\0\0").is_err());
    }

    #[test]
    fn requests_without_a_session_are_told_apart() {
        assert_eq!(opening(&packet(SSL, b"")), Ok(Some((Opening::Encryption, 8))));
        assert_eq!(opening(&packet(GSS, b"")), Ok(Some((Opening::Encryption, 8))));
        for length in [8, 36, 260] {
            let key = vec![7; length];
            assert_eq!(opening(&packet(CANCEL, &key)), Ok(Some((Opening::Cancel(key), 8 + length))));
        }
    }
}
