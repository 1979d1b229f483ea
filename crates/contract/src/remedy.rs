//! Ways out of errors, for programs.

use serde::{Deserialize, Serialize};

/// Declares [`Remedy`] and the table of all remedies.
macro_rules! remedies {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// Way out of an error, for programs. The hint describes it for people, in words that may change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Remedy {
            $($(#[doc = $meaning])+ $name,)+
            /// A remedy of a newer pgfresh.
            #[serde(other)]
            #[cfg_attr(test, schemars(skip))]
            Unknown,
        }

        impl Remedy {
            /// All remedies that pgfresh sends, each with its meaning.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, concat!($($meaning),+)),)+];
        }
    };
}

remedies! {
    /// Ask for the address of this server: `127.0.0.1`, `localhost` or `[::1]` with its port.
    AskThisServer,
    /// Lease with a holder that `GET /v1/hold` has named, and keep that request open.
    BeginHold,
    /// Choose another name, or change the rules for names: `[databases]` in pgfresh.toml, `--names` or `--except`.
    ChangeNames,
    /// Close the sessions of the database, or set `close_sessions`.
    CloseSessions,
    /// Correct the value that the message names.
    CorrectValue,
    /// Finalize or discard the template that another client initialized.
    FinalizeTemplate,
    /// Do what the hint says: the cause is on the machine or in its settings.
    FollowHint,
    /// Release databases, or give more room with `--place` or `--space`.
    MakeRoom,
    /// Name the template to compare with: `?template=TEMPLATE`.
    NameTemplate,
    /// Use another name, or connect to the database that has this one.
    OtherName,
    /// Use one of the methods in `Allow`.
    OtherMethod,
    /// Set a larger `max_connections`, or use fewer connections.
    RaiseMaxConnections,
    /// Lease the database with `record`.
    Record,
    /// Release the database first, or use another name.
    Release,
    /// Report the bug, with the log of pgfresh.
    ReportBug,
    /// Reset the database for a fresh server, or correct the settings of its server and restart it.
    Reset,
    /// Restart the server of the lease: `POST /v1/databases/NAME/restart`.
    RestartServer,
    /// Start pgfresh again, for a new server.
    RestartPgfresh,
    /// See the log of pgfresh.
    SeeLog,
    /// See the names of the leased databases: `GET /v1/status`.
    SeeStatus,
    /// Send the secret: `Authorization: Bearer SECRET`.
    SendSecret,
    /// Start the server with this template: `--template NAME,NAME`.
    ServeTemplate,
    /// Take test databases of the template, which another client has initialized.
    TakeTests,
    /// Lease with isolation `clone`.
    UseClone,
    /// Lease with isolation `server`.
    UseServer,
    /// Use `https`.
    UseTls,
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
