//! Errors of requests.

use serde::{Deserialize, Serialize};

use crate::Remedy;

/// Body of a response with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDescription,
    /// Copy of the message, where integresql's clients look for it. Only under `/api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An error. Programs decide by `code` and `remedy`. The other members are for people, in words that may change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("required" = ["code", "message"])))]
pub struct ErrorDescription {
    /// SQLSTATE that a PostgreSQL client would get, or a code in `snake_case` for an error that no PostgreSQL client gets.
    #[serde(default)]
    #[cfg_attr(test, schemars(regex(pattern = r"^([0-9A-Z]{5}|[a-z]+(_[a-z]+)*)$")))]
    pub code: String,
    /// One line that describes the error.
    pub message: String,
    /// Details, in sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Advice, in sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Way out of the error, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

/// Declares [`ErrorCode`] and the table of all codes.
macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal, [$($status:literal),*];)+) => {
        /// Codes of the errors that pgfresh itself reports. All other SQLSTATEs come from the server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl ErrorCode {
            /// All codes, each with its HTTP statuses and its meaning. A code without a status occurs only in the
            /// output of `pgfresh serve --json`.
            pub const ALL: &[(Self, &[u16], &str)] =
                &[$((Self::$name, &[$($status),*], concat!($($meaning),+)),)+];

            /// Returns the code as clients see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }
        }
    };
}

codes! {
    /// A body ended early.
    BrokenBody = "08P01", [400];
    /// The path does not have this method (405), or the isolation, the server or the kept database does not allow this (400, 409).
    NotSupported = "0A000", [400, 405, 409];
    /// Text that PostgreSQL cannot hold: a zero byte, or no UTF-8.
    InvalidText = "22021", [400];
    /// An invalid value.
    InvalidValue = "22023", [400];
    /// The body is no JSON, lacks a member, or has an unknown or invalid one.
    InvalidBody = "22032", [400];
    /// Another host or origin, or no TLS.
    Forbidden = "28000", [403];
    /// The secret is missing or wrong.
    Unauthorized = "28P01", [401];
    /// No such template or lease; with 410, the template was discarded meanwhile.
    NotFound = "3D000", [404, 410];
    /// An impossible name.
    InvalidName = "42602", [400];
    /// No such path.
    NoPath = "42704", [404];
    /// No such table.
    NoTable = "42P01", [404];
    /// The name is leased already, or there is such a template.
    AlreadyLeased = "42P04", [409];
    /// No room for another database.
    NoRoom = "53100", [503];
    /// Clients use all sessions that the server has.
    TooManyClients = "53300", [503];
    /// The body is too long.
    TooLong = "54000", [413];
    /// The statements of the database are not recorded, or the holder is gone; with 503, the template is not finalized.
    WrongState = "55000", [409, 503];
    /// The database has sessions, or its isolation does not allow this; with 423, the hash has a template.
    InUse = "55006", [409, 423];
    /// With 408, the body came too slowly; with 503, the server did not answer in time.
    TimedOut = "57014", [408, 503];
    /// The database was released meanwhile (409), or pgfresh shuts down (503).
    Gone = "57P01", [409, 503];
    /// The server of the lease does not run.
    ServerDown = "57P03", [409, 500];
    /// A file, process or thread failed.
    SystemError = "58000", [500];
    /// The connection to the server failed.
    ConnectionFailed = "08006", [503];
    /// A bug of pgfresh.
    InternalError = "XX000", [500];
    /// pgfresh found no PostgreSQL that it can use.
    NoInstallation = "no_installation", [];
    /// pgfresh could not build the template.
    TemplateFailed = "template_failed", [];
    /// pgfresh could not start the server.
    StartFailed = "start_failed", [];
    /// Another failure of pgfresh, for example because of a setting.
    Failed = "failed", [];
}

impl ErrorDescription {
    /// Creates an error without details.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }
}
