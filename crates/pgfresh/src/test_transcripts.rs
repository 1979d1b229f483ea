//! Transcribes all sessions of a debug build for tests, if `PGFRESH_TEST_TRANSCRIBE` is set. At its end, the service
//! writes the transcripts to a file in that folder, or nowhere if the value is empty.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gateway::{Gateway, Transcription};
use pgwire::{RequestOutcome, SessionTranscript, TranscribedRequest};
use serde_json::{Value, json};

/// Transcription of a service. Dropping it writes the file.
#[derive(Debug)]
pub(crate) struct TestTranscripts {
    folder: PathBuf,
    transcription: Arc<Transcription>,
}

impl TestTranscripts {
    /// Begins the transcription if the variable is set.
    pub(crate) fn begin(gateway: &Gateway) -> Option<Self> {
        let folder = std::env::var_os("PGFRESH_TEST_TRANSCRIBE")?.into();
        Some(Self { folder, transcription: gateway.transcribe() })
    }
}

impl Drop for TestTranscripts {
    fn drop(&mut self) {
        let sessions: Value = self.transcription.finish().iter().map(session).collect();
        if self.folder.as_os_str().is_empty() {
            return;
        }
        let file = self.folder.join(format!("{}.json", std::process::id()));
        if let Err(error) = fs::write(&file, sessions.to_string()) {
            tracing::error!(%error, "could not write the transcripts");
        }
    }
}

fn session(transcript: &SessionTranscript) -> Value {
    let SessionTranscript { database, parameters, requests, is_cut, .. } = transcript;
    let requests: Value = requests.iter().map(request).collect();
    json!({ "database": database, "parameters": parameters, "requests": requests, "is_cut": is_cut })
}

fn request(TranscribedRequest { messages, outcome, .. }: &TranscribedRequest) -> Value {
    let outcome = outcome.as_ref().map(|RequestOutcome { tags, error, status, .. }| {
        let error = error.as_ref().map(|error| &error.sqlstate);
        json!({ "tags": tags, "error": error, "status": char::from(*status) })
    });
    json!({ "messages": messages.to_vec(), "outcome": outcome })
}
