//! The base image: what initdb makes, once for each build of each version.

use std::time::Instant;

use server::{Guard, Initdb, Installation};
use storage::{Place, Wish};

use crate::about::About;
use crate::maker::{Maker, Step, Template};
use crate::{Fingerprint, Ingredients, MakerError};

/// What initdb leaves, at most, in bytes.
const SIZE: u64 = 64 << 20;
/// Files of a data directory that belong to one server.
pub(crate) const NOT_PUBLISHED: [&str; 2] = ["postmaster.pid", "postmaster.opts"];
/// The database that is always there.
const DATABASE: &str = "postgres";

/// All that shapes a base image.
pub(crate) fn fingerprint(installation: &Installation) -> Fingerprint {
    let mut parts = Fingerprint::of("base image");
    parts.part("version", installation.version().to_string()).part("binary", installation.digest());
    parts.part("platform", std::env::consts::OS).part("architecture", std::env::consts::ARCH);
    for word in Initdb::of(installation).words() {
        parts.part("initdb", word);
    }
    parts.finish()
}

/// Looks the base image up, or makes it; whoever comes second waits and then finds it.
pub(crate) fn look_up_or_build(maker: &Maker, say: &dyn Fn(Step<'_>)) -> Result<Template, MakerError> {
    let (cache, fingerprint) = (&maker.cache, fingerprint(&maker.installation));
    let found = |entry| Template { fingerprint: fingerprint.clone(), entry, database: DATABASE.to_owned() };
    if let Some(entry) = cache.look_up(fingerprint.as_str())? {
        return Ok(found(entry));
    }
    let building = cache.building(fingerprint.as_str(), || say(Step::WaitingForBaseImage))?;
    if let Some(entry) = cache.look_up(fingerprint.as_str())? {
        return Ok(found(entry));
    }
    let version = maker.installation.version();
    say(Step::BuildingBaseImage(version));
    let begun = Instant::now();
    let guard = initialise(maker)?;
    let about = About::new(None, version.to_string(), begun.elapsed(), Ingredients::default());
    Ok(found(building.publish(&guard.run().data(), &NOT_PUBLISHED, &about.to_text())?))
}

/// Runs initdb in a run directory of its own.
fn initialise(maker: &Maker) -> Result<Guard, MakerError> {
    let place = Place::choose(&Wish::Auto, SIZE, maker.cache.root(), &maker.account)?;
    let guard = Guard::over(&place, &maker.account, &maker.program)?;
    Initdb::of(&maker.installation).run(&maker.installation, &maker.account, &guard)?;
    Ok(guard)
}
