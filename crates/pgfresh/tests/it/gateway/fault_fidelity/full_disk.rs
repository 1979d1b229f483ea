//! Server with a tablespace on a file system that is too small.

use std::fs;
use std::process::Command;

use super::SCHEMA;
use crate::common::gateway::Gateway;
use crate::common::serve::Serve;
use crate::common::{Scene, User, ground, postgres};

/// Moves the table `filler` to the small file system.
pub(super) const MOVE: &str = "ALTER TABLE filler SET TABLESPACE small";

/// Starts a gateway in a mount namespace that has a small file system for the tablespace `small`.
pub(super) fn start(major: u32) -> Gateway {
    let scene = Scene::new(User::Ourselves);
    scene.write("template.sql", SCHEMA);
    let small = scene.directory.join("small");
    fs::create_dir(&small).unwrap();
    // PostgreSQL writes 8 KiB pages, which fill the file system completely.
    let script = "mount -t tmpfs -o size=256k,mode=1777 small \"$0\"; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-euc", script]);
    command.arg(&small).arg(ground::program()).args(["serve", "--json"]);
    scene.set(&mut command);
    let options = ["--postgres", &postgres(major), "--sql", "template.sql"].map(str::to_owned);
    let gateway = Gateway { serve: Serve::begin(scene, command, options), major };
    // The directory must belong to the server's account.
    let space = small.join("space").display().to_string();
    gateway.direct("postgres", &format!("COPY (SELECT 1) TO PROGRAM 'mkdir {space}'")).unwrap();
    gateway.direct("postgres", &format!("CREATE TABLESPACE small LOCATION '{space}'")).unwrap();
    gateway
}
