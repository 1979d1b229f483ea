//! Defines the body and the codes of error responses.

use serde::{Deserialize, Serialize};

use crate::Remedy;

/// Body of a response with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDescription,
    /// Copy of the message at the top level, where integresql's clients expect it. Only under `/api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An error. Programs decide by `code` and `remedy`. The other members are texts for people, which might change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("required" = ["code", "message"])))]
pub struct ErrorDescription {
    /// SQLSTATE that a PostgreSQL client would receive, or a code in `snake_case` for an error that PostgreSQL clients
    /// never receive.
    #[serde(default)]
    #[cfg_attr(test, schemars(regex(pattern = r"^([0-9A-Z]{5}|[a-z]+(_[a-z]+)*)$")))]
    pub code: String,
    /// One line that describes the error.
    pub message: String,
    /// Details, in sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Advice for the user, in sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Remedy that a program can apply. Missing if pgfresh doesn't know one.
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
    /// The path doesn't support this method (405), or the isolation, the server or the kept database doesn't allow this
    /// (400, 409).
    NotSupported = "0A000", [400, 405, 409];
    /// The text contains something that PostgreSQL can't store: a zero byte, or invalid UTF-8.
    InvalidText = "22021", [400];
    /// A value is invalid.
    InvalidValue = "22023", [400];
    /// The body isn't JSON, lacks a member, or has an unknown or invalid one.
    InvalidBody = "22032", [400];
    /// The request has a foreign host or origin, or doesn't use TLS.
    Forbidden = "28000", [403];
    /// The secret is missing or wrong.
    Unauthorized = "28P01", [401];
    /// The template or lease doesn't exist; with 410, the template was discarded meanwhile.
    NotFound = "3D000", [404, 410];
    /// The name is invalid.
    InvalidName = "42602", [400];
    /// The path doesn't exist.
    NoPath = "42704", [404];
    /// The table doesn't exist.
    NoTable = "42P01", [404];
    /// The name is already leased, or the template already exists.
    AlreadyLeased = "42P04", [409];
    /// There is no room for another database.
    NoRoom = "53100", [503];
    /// Clients already use all sessions that the server allows.
    TooManyClients = "53300", [503];
    /// The body is too long.
    TooLong = "54000", [413];
    /// The database's statements aren't recorded, or the holder has disconnected; with 503, the template isn't
    /// finalized.
    WrongState = "55000", [409, 503];
    /// The database has sessions, or its isolation doesn't allow this; with 423, the hash already has a template.
    InUse = "55006", [409, 423];
    /// With 408, the body arrived too slowly; with 503, the server didn't respond in time.
    TimedOut = "57014", [408, 503];
    /// The database was released meanwhile (409), or pgfresh is shutting down (503).
    Gone = "57P01", [409, 503];
    /// The lease's server isn't running.
    ServerDown = "57P03", [409, 500];
    /// A file, process or thread failed.
    SystemError = "58000", [500];
    /// The connection to the server failed.
    ConnectionFailed = "08006", [503];
    /// A bug in pgfresh.
    InternalError = "XX000", [500];
    /// pgfresh didn't find a usable PostgreSQL installation.
    NoInstallation = "no_installation", [];
    /// pgfresh couldn't build the template.
    TemplateFailed = "template_failed", [];
    /// pgfresh couldn't start the server.
    StartFailed = "start_failed", [];
    /// pgfresh failed for another reason, such as a wrong setting.
    Failed = "failed", [];
}

impl ErrorDescription {
    /// Creates an error without details.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }
}
