//! Reads the keys for signed templates: the public keys the user trusts and the secret signing key.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use remote::RemoteAddress;
use storage::{KeyError, SigningKey, TrustedKey};

use super::ResolvedSettings;
use crate::failure::Failure;

/// Variable with the secret signing key. CI systems provide secrets as environment variables.
pub(crate) const SIGNING_KEY: &str = "PGFRESH_SIGNING_KEY";
/// Value of [`SIGNING_KEY`] before its removal from the environment.
static TAKEN: OnceLock<Option<OsString>> = OnceLock::new();

/// Removes the secret key from the environment so that child processes don't inherit it. `main` must call this before
/// anything else.
pub(crate) fn take_signing_key() {
    TAKEN.get_or_init(|| sys::take_variable(SIGNING_KEY));
}

/// Returns the signing key in `file`. Without `file`, returns the key in the variable if the variable is set.
pub(crate) fn signing_key(file: Option<&Path>) -> Result<Option<SigningKey>, Failure> {
    let (text, source) = if let Some(path) = file {
        if !matches!(SigningKey::parse(&path.to_string_lossy()), Err(KeyError::Foreign)) {
            return Err(Failure::new(
                "the secret key itself is on the command line, where other users can read it",
            )
            .hint(format!("Generate a new key, then pass its file or set {SIGNING_KEY}.")));
        }
        let unreadable = |error| Failure::new(format!("could not read \"{}\": {error}", path.display()));
        (fs::read_to_string(path).map_err(unreadable)?, format!("\"{}\"", path.display()))
    } else {
        let taken = TAKEN.get().and_then(Option::as_ref).filter(|text| !text.is_empty());
        let Some(text) = taken else { return Ok(None) };
        // A value that isn't UTF-8 can't be a key. An empty text yields the same error.
        (text.to_str().unwrap_or_default().to_owned(), SIGNING_KEY.to_owned())
    };
    let key = SigningKey::parse(&text);
    key.map(Some)
        .map_err(|error| Failure::new(format!("cannot sign with {source}: {error}")).hint(error.hint()))
}

/// Returns the trusted keys from flags or variables, falling back to the configuration file.
pub(super) fn trusted(flags: &[String], file: Vec<TrustedKey>) -> Result<Vec<TrustedKey>, Failure> {
    let named = flags.iter().filter(|text| !text.trim().is_empty());
    let named = named.map(|text| {
        text.parse().map_err(|why| Failure::new(format!("cannot use a key of --cache-key: {why}")))
    });
    let named = named.collect::<Result<Vec<_>, _>>()?;
    Ok(if named.is_empty() { file } else { named })
}

/// Builds the error for a remote without trusted keys.
pub(crate) fn no_trusted_key(address: &RemoteAddress) -> Failure {
    Failure::new(format!("cannot use templates from {address}: no key is trusted")).hint(
        "Write keys = [\"PUBLIC KEY\"] under [cache] in pgfresh.toml, or use --cache-key; \"pgfresh template keygen FILE\" generates a key."
            .to_owned(),
    )
}

/// Checks that machines with this project's trusted keys will accept templates signed with this key.
pub(crate) fn expect_trusted(settings: &ResolvedSettings, key: &SigningKey) -> Result<(), Failure> {
    if settings.trusted.is_empty() || settings.trusted.contains(&key.public()) {
        return Ok(());
    }
    Err(Failure::new("cannot push: the signing key is not one of the trusted [cache] keys").hint(format!(
        "No cache with these keys would accept the template: first add \"{}\" to the keys.",
        key.public()
    )))
}
