//! `pgfresh serve`: a server in the foreground, for as long as somebody holds on to it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use serde::Serialize;
use server::Address;

use crate::cli::{Options, Serve};
use crate::failure::Failure;
use crate::foreground::{Event, Events};

/// The one line that clients read.
#[derive(Serialize)]
struct Ready<'a> {
    url: String,
    host: &'a str,
    port: u16,
    user: &'a str,
    database: &'a str,
    version: String,
    log: String,
    pid: u32,
}

pub(crate) fn execute(options: &Options, arguments: &Serve) -> Result<ExitCode, Failure> {
    let maker = super::maker(options, false)?;
    let started = super::start(options, &maker)?;
    let server = started.server;
    let events = Events::listen()?;
    let address = Address::of(&server, &started.database);
    let mut out = io::stdout().lock();
    let written = if arguments.json {
        let ready = Ready {
            url: address.url(),
            host: &address.host,
            port: 5432,
            user: address.user,
            database: &address.database,
            version: maker.installation.version().to_string(),
            log: server.run().log().display().to_string(),
            pid: server.pid(),
        };
        let line = serde_json::to_string(&ready).map_err(|error| Failure::new(error.to_string()))?;
        writeln!(out, "{line}")
    } else {
        writeln!(out, "{}", address.url())
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(format!("could not write to standard output: {error}")))?;
    events.watch_server(&server)?;
    if is_lifeline() {
        events.watch_lifeline();
    }
    let event = events.next();
    let gone = matches!(event, Event::ServerGone).then(|| server.last_words());
    super::stop(options, server)?;
    match gone {
        Some(words) => {
            Err(Failure::new("the server went away")
                .detail(words.map(|words| format!("Last log line: {words}"))))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Whether our standard input is something whose end means something: not `/dev/null`, as under a service manager.
fn is_lifeline() -> bool {
    let null = File::open("/dev/null").and_then(|file| file.metadata());
    let ours = io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    match (null, ours) {
        (Ok(null), Ok(ours)) => null.rdev() != ours.rdev() || null.mode() != ours.mode(),
        _ => false,
    }
}
