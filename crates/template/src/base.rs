//! Builds base images: data directories that contain only what initdb creates. Without them, each template build would
//! have to run initdb first. The cache has one base image per PostgreSQL build.

use std::time::Instant;

use server::{Data, Guard, Initdb, Installation, Preset, Server, Settings, trim};
use storage::{Place, PlaceRequest};

use crate::description::EntryDescription;
use crate::provisioner::{Provisioner, Step, Template};
use crate::{Fingerprint, FingerprintInputs, ProvisionError};

/// Maximum size of a new data directory, in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// Data directory files that templates omit, because they describe one running server.
pub(crate) const NOT_PUBLISHED: [&str; 2] = ["postmaster.pid", "postmaster.opts"];
/// A database that exists in every cluster.
const DATABASE: &str = "postgres";

/// Computes the fingerprint of the base image from everything that influences its contents.
pub(crate) fn fingerprint(installation: &Installation) -> Fingerprint {
    let mut parts = Fingerprint::of("base image");
    parts.part("version", installation.version().to_string()).part("binary", installation.digest());
    parts.part("platform", std::env::consts::OS).part("architecture", std::env::consts::ARCH);
    for word in Initdb::of(installation).fingerprint_parts() {
        parts.part("initdb", word);
    }
    parts.finish()
}

/// Looks up the base image in the cache, or builds it. If two processes need it at the same time, the second waits for
/// the first and uses its image.
pub(crate) fn look_up_or_build(
    provisioner: &Provisioner,
    report: &dyn Fn(Step<'_>),
) -> Result<Template, ProvisionError> {
    let (cache, fingerprint) = (&provisioner.cache, fingerprint(&provisioner.installation));
    let found = |entry| Template { fingerprint: fingerprint.clone(), entry, database: DATABASE.to_owned() };
    if let Some(entry) = cache.look_up(fingerprint.as_str())? {
        return Ok(found(entry));
    }
    let building = cache.building(fingerprint.as_str(), || report(Step::WaitingForBaseImage))?;
    if let Some(entry) = cache.look_up(fingerprint.as_str())? {
        return Ok(found(entry));
    }
    let version = provisioner.installation.version();
    report(Step::BuildingBaseImage(version));
    let begun = Instant::now();
    let guard = run_initdb(provisioner)?;
    let about =
        EntryDescription::new(None, version.to_string(), begun.elapsed(), FingerprintInputs::default());
    Ok(found(building.publish(&guard.run().data(), &NOT_PUBLISHED, &about.to_text())?))
}

/// Runs initdb in a private run directory, then prepares the result for fast copies.
fn run_initdb(provisioner: &Provisioner) -> Result<Guard, ProvisionError> {
    let Provisioner { installation, account, program, .. } = provisioner;
    let place = Place::choose(&PlaceRequest::Auto, MAX_SIZE, provisioner.cache.root(), account)?;
    let guard = Guard::over(&place, account, program)?;
    Initdb::of(installation).run(installation, account, &guard)?;
    let settings = Settings::preset(Preset::Fast, installation, place.budget());
    let server = Server::start(&provisioner.order(&place, &settings), Data::Prepared(guard), &|_, _| ())?;
    for database in [DATABASE, "template1"] {
        server.write_relation_cache(database)?;
    }
    let guard = server.shut_down()?;
    trim(installation, account, &guard)?;
    Ok(guard)
}
