//! What a client is told of an error of a lease.

use lease::LeaseError;
use pgwire::ErrorResponse;

/// The frame for an error, which is the server's own where it was the server that refused.
pub(crate) fn words(error: LeaseError) -> Vec<u8> {
    match error {
        LeaseError::Refused(words) => words,
        error => response(&error).to_bytes(),
    }
}

fn response(error: &LeaseError) -> ErrorResponse {
    let mut response = ErrorResponse::fatal(error.sqlstate().to_owned(), with_causes(error));
    response.detail = error.detail().map(Into::into);
    response.hint = error.hint().map(Into::into);
    response
}

/// The error and what caused it, in one line: a client shows no chain.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_error_keeps_its_words() {
        let error = LeaseError::UnknownTemplate { name: "shop".to_owned(), known: vec!["main".to_owned()] };
        let bytes = response(&error).to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("C3D000\0Mtemplate \"shop\" does not exist\0DThis server has main.\0"),
            "{text}"
        );
    }
}
