//! Describes a cache entry in a file next to its data. The file lists the entry's contents, inputs and creation time,
//! so that users can see what an entry contains and why a build was necessary.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use storage::{Cache, FileError};

use crate::fingerprint_inputs::GOES_ON_FROM;
use crate::{Fingerprint, FingerprintInputs, TemplateSpec};

/// Description of a cache entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryDescription {
    /// Name of the template, or the names of all templates in its cluster. `None` for a base image.
    pub name: Option<String>,
    /// PostgreSQL version.
    pub version: String,
    /// Folder of the template's specification, or empty for a base image.
    pub folder: PathBuf,
    /// Summary of the steps.
    pub made_from: String,
    /// Fingerprint of the earlier template that an incremental build started from, or `None` if the build ran all
    /// steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// When the entry was built, in seconds since 1970.
    pub created: u64,
    /// How long the build took, in seconds.
    pub took: f64,
    /// Inputs that determine the fingerprint.
    pub fingerprint_inputs: FingerprintInputs,
}

impl EntryDescription {
    /// Describes the template built from `spec`, or the base image if there is no specification.
    pub(crate) fn new(
        spec: Option<&TemplateSpec>,
        version: String,
        took: Duration,
        fingerprint_inputs: FingerprintInputs,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            name: spec.map(TemplateSpec::title),
            version,
            folder: spec
                .map_or_else(PathBuf::new, |spec| spec.checkout_of.as_ref().unwrap_or(&spec.folder).clone()),
            made_from: spec.map_or_else(|| "initdb".to_owned(), TemplateSpec::summary),
            parent: None,
            created: now.as_secs(),
            took: took.as_secs_f64(),
            fingerprint_inputs,
        }
    }

    /// Sets the fingerprint of the earlier template that the build started from. `None` means a full build.
    pub(crate) fn with_parent(self, parent: Option<&Fingerprint>) -> Self {
        Self { parent: parent.map(|parent| parent.as_str().to_owned()), ..self }
    }

    /// Returns the fingerprints of the templates whose files this one contains: its parent and the template it extends.
    #[must_use]
    pub fn ancestors(&self) -> Vec<String> {
        let from = self.fingerprint_inputs.iter().find(|(name, _)| *name == GOES_ON_FROM);
        self.parent.iter().cloned().chain(from.map(|(_, value)| value.to_owned())).collect()
    }

    /// Serializes the description as JSON.
    pub(crate) fn to_text(&self) -> String {
        // Serialization can't fail, because there are only strings, numbers and a map of strings.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Parses text from [`Self::to_text`]. Returns `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Returns the inputs of the last template built with this name in this folder. `None` for temporary checkouts.
pub(crate) fn last_inputs(cache: &Cache, spec: &TemplateSpec) -> Option<FingerprintInputs> {
    if spec.checkout_of.is_some() {
        return None;
    }
    serde_json::from_str(&cache.recall(&note_name(&spec.folder, &spec.title()))?).ok()
}

/// Stores the inputs, so that a later build can explain why it is necessary. Builds in temporary checkouts leave no
/// note.
pub(crate) fn save_inputs(
    cache: &Cache,
    spec: &TemplateSpec,
    fingerprint_inputs: &FingerprintInputs,
) -> Result<(), FileError> {
    if spec.checkout_of.is_some() {
        return Ok(());
    }
    let text = serde_json::to_string(fingerprint_inputs).unwrap_or_default();
    cache.remember(&note_name(&spec.folder, &spec.title()), &text)
}

fn note_name(folder: &Path, name: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(folder.as_os_str().as_encoded_bytes()).update(b"\0").update(name.as_bytes());
    format!("last-1-{}", &hasher.finalize().to_hex()[..24])
}
