//! A gateway for measuring, until standard input closes: over the server whose socket's directory is named, else over
//! one of its own on the base image.
//!
//! ```text
//! cargo run --release -p gateway --example serve -- [DIRECTORY]
//! ```
//!
//! Prints three lines: the secret, host and port of the gateway, and the file of its unix socket.

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use database::{Databases, Origin, TemplateDatabase};
use gateway::{Access, Gateway, Options};
use template::{Maker, Wishes};

fn main() -> Result<(), Box<dyn Error>> {
    // The guard over the server is this program, too.
    if server::guard_main() {
        return Ok(());
    }
    let named = std::env::args_os().nth(1).map(PathBuf::from);
    let maker = Maker::find(Wishes::default(), storage::Cache::locate(None)?, std::env::current_exe()?)?;
    let started = if named.is_none() { Some(maker.start(&|_| ())?) } else { None };
    let own = started.as_ref().map(|started| started.server.run().address().to_owned());
    let directory = named.or(own).unwrap_or_default();
    let databases = Databases::open(Origin {
        directory: directory.clone(),
        major: maker.installation.version().major,
        budget: 4 << 30,
        templates: vec![TemplateDatabase { name: "default".to_owned(), database: "template1".to_owned() }],
        linger: Duration::from_secs(5),
        paranoid: false,
    })?;
    let socket = directory.join(".s.PGSQL.5433");
    let options = Options {
        listen: "127.0.0.1:0".parse()?,
        socket: Some(socket.clone()),
        secret: Access::random_secret()?,
        directory,
    };
    let gateway = Gateway::open(databases.clone(), options)?;
    let secret = gateway.access().secret();
    let mut out = io::stdout();
    writeln!(out, "{secret}\n{}\n{}", gateway.address(), socket.display())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    gateway.close();
    databases.close();
    drop(started);
    Ok(())
}
