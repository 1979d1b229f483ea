//! What is written beside each entry of the cache: what it is, from what and when it was made.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use storage::{Cache, FileError};

use crate::{Ingredients, Recipe};

/// The description of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The template's name and that of its database; none is a base image.
    pub name: Option<String>,
    /// The version of `PostgreSQL`.
    pub version: String,
    /// The project that it was made for.
    pub folder: PathBuf,
    /// The steps, in a few words.
    pub made_from: String,
    /// Seconds since 1970.
    pub created: u64,
    /// How long it took to make, in seconds.
    pub took: f64,
    /// All that shaped it.
    pub ingredients: Ingredients,
}

impl About {
    /// Describes what `recipe` made, or initdb without one.
    pub(crate) fn new(
        recipe: Option<&Recipe>,
        version: String,
        took: Duration,
        ingredients: Ingredients,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            name: recipe.map(|recipe| recipe.name.clone()),
            version,
            folder: recipe.map_or_else(PathBuf::new, |recipe| recipe.folder.clone()),
            made_from: recipe.map_or_else(|| "initdb".to_owned(), Recipe::words),
            created: now.as_secs(),
            took: took.as_secs_f64(),
            ingredients,
        }
    }

    /// As it is stored.
    pub(crate) fn to_text(&self) -> String {
        // Strings, numbers and a map of strings: nothing that could fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads what [`Self::to_text`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The ingredients of the last template that was made of this name in this folder.
pub(crate) fn last(cache: &Cache, recipe: &Recipe) -> Option<Ingredients> {
    serde_json::from_str(&cache.recall(&note(&recipe.folder, &recipe.name))?).ok()
}

/// Remembers them for the next who asks why there is something to build.
pub(crate) fn remember(cache: &Cache, recipe: &Recipe, ingredients: &Ingredients) -> Result<(), FileError> {
    let text = serde_json::to_string(ingredients).unwrap_or_default();
    cache.remember(&note(&recipe.folder, &recipe.name), &text)
}

fn note(folder: &Path, name: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(folder.as_os_str().as_encoded_bytes()).update(b"\0").update(name.as_bytes());
    format!("last-1-{}", &hasher.finalize().to_hex()[..24])
}
