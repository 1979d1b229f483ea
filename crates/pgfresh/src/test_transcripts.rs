//! Writes transcripts of all sessions in debug builds, for tests.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gateway::{Gateway, Transcription};
use pgwire::{RequestOutcome, SessionTranscript, TranscribedRequest};
use serde_json::{Value, json};
use sys::lock;

/// The transcription in this process and the folder for its transcripts. `None` if no test has requested transcripts.
/// An empty folder name means that no file is written.
static BEGUN: Mutex<Option<(Arc<Transcription>, PathBuf)>> = Mutex::new(None);

/// Begins the transcription.
pub(crate) fn begin(gateway: &Gateway, folder: PathBuf) {
    *lock(&BEGUN) = Some((gateway.transcribe(), folder));
}

/// Ends the transcription, if there is one, and writes all transcripts to a file.
pub(crate) fn write() {
    let Some((transcription, folder)) = lock(&BEGUN).take() else { return };
    let sessions: Value = transcription.finish().iter().map(session).collect();
    let file = folder.join(format!("{}.json", std::process::id()));
    if !folder.as_os_str().is_empty()
        && let Err(error) = fs::write(&file, sessions.to_string())
    {
        tracing::error!(%error, "could not write the transcripts");
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
