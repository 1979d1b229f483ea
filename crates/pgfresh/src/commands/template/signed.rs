//! Creates keys, signs templates, and imports templates with trusted signatures.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use storage::{Cache, CacheError, SigningKey, TrustedKey};

use super::short;
use crate::cancellation::cancellable;
use crate::cli::Sign;
use crate::context::Context;
use crate::failure::Failure;
use crate::new_file::{self, Readers};
use crate::notice::print_notice;
use crate::output::print_line;
use crate::settings::{ResolvedSettings, SIGNING_KEY, expect_trusted, signing_key};

/// Writes a new secret key to `file` and its public key to a file beside it. Returns an error if either file exists.
pub(super) fn keygen(file: &Path) -> Result<(), Failure> {
    let beside = file.with_added_extension("pub");
    let there = [file, &beside].into_iter().find(|path| path.symlink_metadata().is_ok());
    if let Some(path) = there {
        return Err(Failure::new(format!("\"{}\" already exists", path.display()))
            .hint("pgfresh never overwrites a key: use a different name.".to_owned()));
    }
    let key =
        SigningKey::generate().map_err(|error| Failure::new(format!("could not generate a key: {error}")))?;
    let could_not = |path: &Path, error: &io::Error| {
        Failure::new(format!("could not write \"{}\": {error}", path.display()))
    };
    new_file::create(file, &key.to_text(), Readers::Owner).map_err(|error| could_not(file, &error))?;
    let public = key.public();
    let written = new_file::create(&beside, &public.to_text(), Readers::Owner)
        .and_then(|()| fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)));
    if let Err(error) = written {
        // A secret key is useless without its public key. This invocation created the file, so removing it is safe.
        drop(fs::remove_file(file));
        return Err(could_not(&beside, &error));
    }
    print_line!(
        "# Keep {} secret. In pgfresh.toml:\n[cache]\nkeys = [{}]",
        file.display(),
        json!(public.to_string())
    );
    Ok(())
}

/// Returns the signing key for `push`. If there are trusted keys in the settings, rejects any other key.
pub(super) fn key_for_push(
    settings: &ResolvedSettings,
    file: Option<&Path>,
) -> Result<Option<SigningKey>, Failure> {
    let key = signing_key(file)?;
    if let Some(key) = &key {
        expect_trusted(settings, key)?;
    } else if !settings.trusted.is_empty() {
        return Err(Failure::new("cannot push a template without a signature: [cache] keys are configured")
            .hint(format!("Set {SIGNING_KEY} to the secret key, or use --key FILE.")));
    }
    Ok(key)
}

/// Builds the error for a missing signing key.
pub(super) fn no_key() -> Failure {
    Failure::new("no signing key is configured").hint(format!(
        "Set {SIGNING_KEY} to the secret key, or use --key FILE; \"pgfresh template keygen FILE\" generates a key."
    ))
}

/// Signs the templates in a directory.
pub(super) fn sign(context: &Context, arguments: &Sign) -> Result<(), Failure> {
    let key = signing_key(arguments.key.as_deref())?.ok_or_else(no_key)?;
    let paths = templates_in(&arguments.folder)?;
    cancellable(|cancelled| {
        for path in &paths {
            storage::sign(path, &key, cancelled)?;
            print_result(context.verbosity.is_quiet(), path, "signed");
        }
        Ok::<_, Failure>(())
    })
}

/// Verifies the signatures and files of the templates in `folder`.
pub(super) fn verify(context: &Context, folder: &Path) -> Result<(), Failure> {
    let settings = context.settings()?;
    if settings.trusted.is_empty() {
        return Err(Failure::new("no public keys are configured for verification").hint(
            "Write keys = [\"PUBLIC KEY\"] under [cache] in pgfresh.toml, or use --cache-key.".to_owned(),
        ));
    }
    let paths = templates_in(folder)?;
    cancellable(|cancelled| {
        one_by_one(&paths, |path| {
            let signed = storage::verify(path, &settings.trusted, cancelled)?;
            print_result(context.verbosity.is_quiet(), path, &format!("signed with key {}", signed.key));
            Ok(())
        })
    })
}

/// Imports the templates in `folder`. Without trusted keys, accepts any signature or none.
pub(super) fn pull(cache: &Cache, folder: &Path, trusted: &[TrustedKey], quiet: bool) -> Result<(), Failure> {
    let paths = templates_in(folder)?;
    cancellable(|cancelled| {
        let take = |path: &PathBuf| {
            let new = cache.import(path, trusted, cancelled)?;
            print_result(quiet, path, if new { "taken over" } else { "is already in the cache" });
            Ok(())
        };
        if trusted.is_empty() {
            return paths.iter().try_for_each(take).map_err(Failure::from);
        }
        one_by_one(&paths, take)
    })
}

/// Calls `work` for each entry, continuing after errors so that one bad entry doesn't block the others. Reports all
/// errors and returns the last one as the failure.
fn one_by_one(
    paths: &[PathBuf],
    mut work: impl FnMut(&PathBuf) -> Result<(), CacheError>,
) -> Result<(), Failure> {
    let mut refused: Option<Failure> = None;
    for path in paths {
        match work(path) {
            Err(error @ (CacheError::Untrusted { .. } | CacheError::Invalid { .. })) => {
                if let Some(before) = refused.replace(error.into()) {
                    print_notice(before);
                }
            }
            other => other?,
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Returns the entries in `folder`, or an error if there are none.
fn templates_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let paths = storage::exported_entries(folder)?;
    if paths.is_empty() {
        return Err(Failure::new(format!("there is no template in \"{}\"", folder.display()))
            .hint("\"pgfresh template push FOLDER\" writes one.".to_owned()));
    }
    Ok(paths)
}

fn print_result(quiet: bool, path: &Path, what: &str) {
    if !quiet {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        print_line!("{} {what}", short(&name));
    }
}
