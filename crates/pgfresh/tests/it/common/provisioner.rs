//! Provisioner whose template is a schema, for testing the crates below the binary.

use std::fs;
use std::path::PathBuf;

use server::VersionRequest;
use template::{Provisioner, ServerOptions, TemplateSpec};

use super::watchdog::Watchdog;
use super::{User, ground, postgres};

/// Name of the template and its database.
pub(crate) const DATABASE: &str = "app";

/// Returns a provisioner for `major` whose template is `schema`, and a watchdog for its servers.
pub(crate) fn provisioner(major: u32, schema: &str) -> (Provisioner, Watchdog) {
    let (folder, place) = (ground::directory(User::Ourselves), ground::place(User::Ourselves));
    let cache = folder.join("cache");
    ground::copy_base_cache(User::Ourselves, &cache);
    fs::write(folder.join("schema.sql"), schema).unwrap();
    let spec = TemplateSpec {
        name: DATABASE.to_owned(),
        folder,
        sql: vec!["schema.sql".to_owned()],
        ..TemplateSpec::default()
    };
    let installation = match postgres(major).parse() {
        Ok(major) => VersionRequest::Major(major),
        Err(_) => VersionRequest::Bin(postgres(major).into()),
    };
    let options = ServerOptions {
        installation,
        place: storage::PlaceRequest::At(place.clone()),
        template: Some(spec),
        ..ServerOptions::default()
    };
    let cache = storage::Cache::locate(Some(&cache)).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pgfresh"));
    (Provisioner::find(options, cache, program).unwrap(), Watchdog::new(&place))
}
