//! Defines request errors: [`ErrorDescription`]s with an HTTP status.

use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use contract::{ErrorCode, ErrorDescription, Remedy};
use diff::DiffError;
use lease::LeaseError;
use server::SessionError;

/// A request error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) description: ErrorDescription,
    /// A header that the status requires, such as `Allow` or `WWW-Authenticate`.
    pub(crate) header: Option<Box<(HeaderName, String)>>,
}

/// Creates a response without a body. The body depends on the kind of client, so [`crate::render`] adds it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, description: ErrorDescription::new(code.as_str(), message), header: None }
    }

    /// Returns the error for a parameter with an invalid value.
    pub(crate) fn invalid(name: &str, value: &str, hint: impl Into<String>) -> Self {
        let what = format!("invalid value for \"{name}\": \"{value}\"");
        Self::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidValue, what).hint(Remedy::CorrectValue, hint)
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.description.detail = Some(detail.into());
        self
    }

    /// Adds a remedy: a code for programs, and a `hint` for people.
    pub(crate) fn hint(mut self, remedy: Remedy, hint: impl Into<String>) -> Self {
        self.description.remedy = Some(remedy);
        self.description.hint = Some(hint.into());
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.header = Some(Box::new((name, value.into())));
        self
    }

    /// Treats an error as success if the server's shutdown caused it.
    pub(crate) fn unless_closed(self) -> Result<StatusCode, Self> {
        let is_closed = self.description.code == ErrorCode::Gone.as_str();
        if is_closed { Ok(StatusCode::NO_CONTENT) } else { Err(self) }
    }

    /// Returns the error for a panic in pgfresh.
    pub(crate) fn defect() -> Self {
        let message = "the request ended in an internal error";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::InternalError, message)
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let code = error.sqlstate();
        let status = match code {
            "3D000" => StatusCode::NOT_FOUND,
            "42602" => StatusCode::BAD_REQUEST,
            "42P04" | "55006" | "0A000" => StatusCode::CONFLICT,
            // Not a failure of pgfresh: the client can start the server again.
            _ if matches!(error, LeaseError::Stopped(_) | LeaseError::Promoted(_)) => StatusCode::CONFLICT,
            _ if is_passing(code) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let description = ErrorDescription {
            detail: error.detail(),
            hint: error.hint(),
            remedy: remedy(&error),
            ..ErrorDescription::new(code, error.with_causes())
        };
        Self { status, description, header: None }
    }
}

/// Returns true if a later request might succeed, namely after a connection exception, insufficient resources, a
/// timeout or pgfresh's shutdown.
fn is_passing(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("53") || matches!(code, "57014" | "57P01")
}

/// Returns the remedy for an error. Every error with a [`LeaseError::hint`] has one.
fn remedy(error: &LeaseError) -> Option<Remedy> {
    Some(match error {
        LeaseError::UnknownTemplate { .. } => Remedy::ServeTemplate,
        LeaseError::Excluded(_) => Remedy::ChangeNames,
        LeaseError::Leased(_) | LeaseError::TemplateExists(_) => Remedy::OtherName,
        LeaseError::InUse { .. } => Remedy::CloseSessions,
        LeaseError::NotCopied { .. }
        | LeaseError::Hidden(_)
        | LeaseError::Busy(_)
        | LeaseError::OtherParameters(_)
        | LeaseError::Replication
        | LeaseError::Writable(_)
        | LeaseError::NoServerFrom(_) => Remedy::UseClone,
        LeaseError::OtherIsolation { .. } | LeaseError::OtherTemplate { .. } => Remedy::Release,
        LeaseError::Panicked | LeaseError::Failed => Remedy::ReportBug,
        LeaseError::Timeout { .. } | LeaseError::NoConnection { .. } | LeaseError::Replica { .. } => {
            Remedy::SeeLog
        }
        LeaseError::NoServer(_) => Remedy::UseServer,
        LeaseError::Stopped(_) | LeaseError::Ended { .. } => Remedy::RestartServer,
        LeaseError::NotStarted { .. } | LeaseError::Lost { .. } | LeaseError::ReplicaEnded { .. } => {
            Remedy::Reset
        }
        LeaseError::NoReplica(_)
        | LeaseError::Promoted(_)
        | LeaseError::NotReplicated(_)
        | LeaseError::Blocked { .. } => Remedy::FollowHint,
        LeaseError::Emptied(_) | LeaseError::Changed(_) => Remedy::RestartPgfresh,
        LeaseError::NotLeased(_) | LeaseError::NoFaults(_) => Remedy::SeeStatus,
        LeaseError::TooManyClients { .. } => Remedy::RaiseMaxConnections,
        LeaseError::Full { .. } => Remedy::MakeRoom,
        LeaseError::Server { .. } | LeaseError::Threads(_) => {
            return error.hint().map(|_| Remedy::FollowHint);
        }
        LeaseError::Refused(_)
        | LeaseError::NoDatabase(_)
        | LeaseError::Closed
        | LeaseError::Gone
        | LeaseError::Name { .. }
        | LeaseError::TemplateName(_)
        | LeaseError::NoServers
        | LeaseError::Unfit(_)
        | LeaseError::Sql { .. }
        | LeaseError::Io { .. } => return None,
    })
}

impl From<DiffError> for Problem {
    fn from(error: DiffError) -> Self {
        let code = error.sqlstate();
        let (status, remedy) = match &error {
            DiffError::UnknownTable(_) => (StatusCode::NOT_FOUND, Some(Remedy::CorrectValue)),
            DiffError::Encodings { .. } => (StatusCode::CONFLICT, None),
            DiffError::Session { source: SessionError::Server { .. }, .. } if code == "57P01" => {
                (StatusCode::CONFLICT, None)
            }
            DiffError::Session { .. } if is_passing(code) => (StatusCode::SERVICE_UNAVAILABLE, None),
            DiffError::Session { .. } => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        let description = ErrorDescription {
            detail: error.detail(),
            hint: error.hint(),
            remedy,
            ..ErrorDescription::new(code, error.to_string())
        };
        Self { status, description, header: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status() {
        let broken = || std::io::Error::other("gone");
        for (error, status) in [
            (LeaseError::NotLeased("a".into()), StatusCode::NOT_FOUND),
            (LeaseError::NoFaults("a".into()), StatusCode::NOT_FOUND),
            (LeaseError::InUse { name: "a".into(), sessions: 1 }, StatusCode::CONFLICT),
            (LeaseError::Name { name: "a".into(), why: "it is taken" }, StatusCode::BAD_REQUEST),
            (LeaseError::Full { leased: 1, kept: 0, most: 1 }, StatusCode::SERVICE_UNAVAILABLE),
            (LeaseError::Io { verb: "read", source: broken() }, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(Problem::from(error).status, status);
        }
    }
}
