//! Computes the keys that name background servers' slots.

use std::fs;
use std::os::unix::fs::MetadataExt;

use gateway::Budget;
use lease::NameRules;
use server::{Preset, VersionRequest};
use storage::{Attempt, PlaceRequest};
use template::{Fingerprint, Provisioner, ServerOptions};

use crate::failure::Failure;
use crate::settings::ResolvedSettings;

/// Computes the key. Two background servers have the same key only if they are interchangeable.
pub(super) fn of(provisioner: &Provisioner, settings: &ResolvedSettings) -> Result<String, Failure> {
    let binary = fs::metadata(sys::this_program()).attempt("examine", sys::this_program())?;
    let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let mut key = Fingerprint::of("background server");
    key.part("project", settings.folder.as_os_str().as_encoded_bytes());
    // The fingerprint covers all options of the template.
    key.part("template", provisioner.fingerprint()?.as_str());
    let has_replica = provisioner.for_leased_servers().has_standby();
    key.part("replica", if has_replica { "yes" } else { "" });
    let ServerOptions { installation, place, space, preset, settings: server_settings, cache_size, .. } =
        provisioner.server_options();
    match installation {
        VersionRequest::Any => key.part("installation", "any"),
        VersionRequest::Major(major) => key.part("major", major.to_string()),
        VersionRequest::Bin(path) => key.part("programs", path.as_os_str().as_encoded_bytes()),
    };
    match place {
        PlaceRequest::Auto => key.part("place", "auto"),
        PlaceRequest::Ram => key.part("place", "ram"),
        PlaceRequest::Disk => key.part("place", "disk"),
        PlaceRequest::At(path) => key.part("directory", path.as_os_str().as_encoded_bytes()),
    };
    let preset = match preset {
        Preset::Fast => "fast",
        Preset::Durable => "durable",
    };
    key.part("preset", preset).part("space", number(*space)).part("cache size", number(*cache_size));
    for (name, value) in server_settings {
        key.part("setting", name).part("value", value);
    }
    let NameRules { names, except } = &settings.names;
    for pattern in names {
        key.part("names", pattern);
    }
    for pattern in except {
        key.part("except", pattern);
    }
    key.part("isolation", settings.isolation.as_str());
    key.part("linger", settings.linger.as_nanos().to_string());
    let Budget { statements, n_plus_one, time } = &settings.budget;
    key.part("statements", number(*statements)).part("n_plus_one", number(*n_plus_one));
    key.part("time", time.map_or_else(String::new, |time| time.as_nanos().to_string()));
    // After an upgrade, pgfresh's clients must not use a server of the previous build.
    for part in [binary.dev(), binary.ino(), binary.size()] {
        key.part("binary", part.to_le_bytes());
    }
    key.part("built", binary.mtime().to_le_bytes()).part("nanoseconds", binary.mtime_nsec().to_le_bytes());
    Ok(key.finish().as_str().to_owned())
}
