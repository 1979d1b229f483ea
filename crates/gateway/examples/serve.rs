//! A gateway over a server on the base image, until standard input closes: for measuring.
//!
//! ```text
//! cargo run --release -p gateway --example serve -- max_connections=2500
//! ```
//!
//! Arguments are settings of the server. Prints four lines: the secret, host and port of the gateway, the file of its
//! unix socket, and the directory of the server's own.

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use database::{Databases, Origin, TemplateDatabase};
use gateway::{Access, Gateway, Options};
use template::{Maker, Wishes};

fn main() -> Result<(), Box<dyn Error>> {
    // The guard over the server is this program, too.
    if server::guard_main() {
        return Ok(());
    }
    let settings = std::env::args().skip(1);
    let settings =
        settings.filter_map(|pair| pair.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())));
    let wishes = Wishes { settings: settings.collect(), ..Wishes::default() };
    let maker = Maker::find(wishes, storage::Cache::locate(None)?, std::env::current_exe()?)?;
    let started = maker.start(&|_| ())?;
    let directory = started.server.run().address().to_owned();
    let databases = Databases::open(Origin {
        directory: directory.clone(),
        major: maker.installation.version().major,
        budget: started.place.budget(),
        templates: vec![TemplateDatabase { name: "default".to_owned(), database: "template1".to_owned() }],
        linger: Duration::from_secs(5),
    })?;
    let socket = directory.join(".s.PGSQL.5433");
    let options = Options {
        listen: "127.0.0.1:0".parse()?,
        socket: Some(socket.clone()),
        secret: Access::random_secret()?,
        directory: directory.clone(),
    };
    let gateway = Gateway::open(databases.clone(), options)?;
    let secret = gateway.access().secret();
    let mut out = io::stdout();
    writeln!(out, "{secret}\n{}\n{}\n{}", gateway.address(), socket.display(), directory.display())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    gateway.close();
    databases.close();
    started.server.stop()?;
    Ok(())
}
