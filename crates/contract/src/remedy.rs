//! Defines remedies: what programs can do about errors.

use serde::{Deserialize, Serialize};

/// Declares [`Remedy`] and the table of all remedies.
macro_rules! remedies {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal,)+) => {
        /// A remedy for an error, for programs. The hint explains the remedy to people, in words that might change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum Remedy {
            $($(#[doc = $meaning])+ #[serde(rename = $code)] $name,)+
            /// A remedy that a newer pgfresh has sent.
            #[serde(other)]
            #[cfg_attr(test, schemars(skip))]
            Unknown,
        }

        impl Remedy {
            /// All remedies that pgfresh sends, each with its meaning.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, concat!($($meaning),+)),)+];

            /// Returns the code as clients see it, or `None` for a newer pgfresh's remedy.
            #[must_use]
            pub const fn as_str(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($code),)+
                    Self::Unknown => None,
                }
            }
        }
    };
}

remedies! {
    /// Send the request to this server's own address: `127.0.0.1`, `localhost` or `[::1]` with its port.
    AskThisServer = "ask_this_server",
    /// Use a holder name from a `GET /v1/hold` request, and keep that request open.
    BeginHold = "begin_hold",
    /// Use another name, or change the rules for names: `[databases]` in pgfresh.toml, `--names` or `--except`.
    ChangeNames = "change_names",
    /// Close the sessions of the database, or set `close_sessions`.
    CloseSessions = "close_sessions",
    /// Correct the value that the message names.
    CorrectValue = "correct_value",
    /// Finalize or discard the template that another client initialized.
    FinalizeTemplate = "finalize_template",
    /// Do what the hint says: the cause is on the machine or in its settings.
    FollowHint = "follow_hint",
    /// Release databases, or provide more room with `--place` or `--space`.
    MakeRoom = "make_room",
    /// Name the template to compare with: `?template=TEMPLATE`.
    NameTemplate = "name_template",
    /// Use another name, or connect to the existing database with this name.
    OtherName = "other_name",
    /// Use one of the methods listed in `Allow`.
    OtherMethod = "other_method",
    /// Set a larger `max_connections`, or use fewer connections.
    RaiseMaxConnections = "raise_max_connections",
    /// Lease the database with `record` set.
    Record = "record",
    /// Release the database first, or use another name.
    Release = "release",
    /// Report the bug, and include the log of pgfresh.
    ReportBug = "report_bug",
    /// Reset the database for a fresh server, or correct the settings of its server and restart it.
    Reset = "reset",
    /// Restart the server of the lease: `POST /v1/databases/NAME/restart`.
    RestartServer = "restart_server",
    /// Restart pgfresh, which starts a new server.
    RestartPgfresh = "restart_pgfresh",
    /// Read the log of pgfresh.
    SeeLog = "see_log",
    /// List the leased databases: `GET /v1/status`.
    SeeStatus = "see_status",
    /// Send the secret: `Authorization: Bearer SECRET`.
    SendSecret = "send_secret",
    /// Start the server with this template: `--template NAME,NAME`.
    ServeTemplate = "serve_template",
    /// Lease test databases of the template, which another client has already initialized.
    TakeTests = "take_tests",
    /// Lease the database with isolation `clone`.
    UseClone = "use_clone",
    /// Lease the database with isolation `server`.
    UseServer = "use_server",
    /// Use `https`.
    UseTls = "use_tls",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_of_newer_server_is_unknown() {
        assert_eq!(serde_json::to_string(&Remedy::CloseSessions).unwrap(), "\"close_sessions\"");
        assert_eq!(serde_json::from_str::<Remedy>("\"close_sessions\"").unwrap(), Remedy::CloseSessions);
        assert_eq!(serde_json::from_str::<Remedy>("\"wait_for_spring\"").unwrap(), Remedy::Unknown);
    }
}
