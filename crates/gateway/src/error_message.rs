//! Creates the error messages that the gateway itself sends.
//!
//! A client receives one of them if it can't get a database, or if the gateway terminates its session.

use lease::LeaseError;
use pgwire::ErrorResponse;

/// Returns the message for an error. If the server refused the client, this is the server's own message.
pub(crate) fn to_message(error: LeaseError) -> Vec<u8> {
    match error {
        LeaseError::Refused(message) => message,
        error => response(&error).to_bytes(),
    }
}

/// Returns the error for a session after its server has disappeared.
pub(crate) fn server_gone() -> ErrorResponse {
    ErrorResponse::fatal("57P02", "terminating connection because the server went away")
        .hint("The server's log has the reason.")
}

/// Returns the error for a session that a reset or the end of its lease terminates. PostgreSQL sends the same error
/// when an administrator terminates a session.
pub(crate) fn closed() -> ErrorResponse {
    ErrorResponse::fatal("57P01", "terminating connection due to administrator command")
}

/// Returns the error for a session that is terminated because pgfresh is shutting down.
pub(crate) fn shutting_down() -> ErrorResponse {
    ErrorResponse::fatal("57P01", "terminating connection because pgfresh is shutting down")
        .hint("The database was removed. Lease a new database from a running pgfresh server.")
}

fn response(error: &LeaseError) -> ErrorResponse {
    let mut response = ErrorResponse::fatal(error.sqlstate().to_owned(), error.with_causes());
    response.detail = error.detail().map(Into::into);
    response.hint = error.hint().map(Into::into);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_error_keeps_its_message() {
        let error = LeaseError::UnknownTemplate { name: "shop".to_owned(), known: vec!["main".to_owned()] };
        let bytes = response(&error).to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("C3D000\0Mtemplate \"shop\" does not exist\0DThis server has main.\0HTo have several templates in one server, start it with --template NAME,NAME.\0"),
            "{text}"
        );
    }
}
