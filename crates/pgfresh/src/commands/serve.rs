//! `pgfresh serve`: runs a server in the foreground until standard input closes or a signal arrives, or uses the
//! background server with `--shared`.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use contract::{LeaseRequest, LeaseResponse};
use serde::Serialize;
use template::Provisioner;

use crate::background::{self, RunningServer};
use crate::cli::Serve;
use crate::context::Context;
use crate::failure::Failure;
use crate::foreground::{self, Event, Events};
use crate::lifecycle;
use crate::named::NamedServer;
use crate::notice::notice;
use crate::output::{self, Verbosity};
use crate::service::{ServeOptions, Service, leases_failed};

/// The JSON line for the client that started this process.
#[derive(Serialize)]
struct Ready<'a> {
    /// URL of the prepared database. Clients get another copy by replacing the database name in the URL.
    url: String,
    jdbc_url: String,
    host: String,
    port: u16,
    user: &'a str,
    password: Option<String>,
    database: &'a str,
    /// URL of the HTTP API. The password serves as its token.
    http_url: String,
    /// The live page's URL for a browser, including the token.
    page_url: String,
    version: String,
    log: String,
    pid: u32,
    /// URL of the prepared database's replica. Missing unless the template has a replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica_url: Option<String>,
    /// Path of the root certificate, if pgfresh generated one for TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    root_certificate: Option<String>,
    /// Name that identifies this process as a lease holder on a shared server. These leases end when this
    /// process exits.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
}

pub(crate) fn execute(context: &Context, arguments: &Serve) -> Result<ExitCode, Failure> {
    if arguments.shared {
        return share(context, arguments.json);
    }
    let listen = arguments.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let serve_options =
        ServeOptions::new(context.settings()?)?.with(&arguments.service)?.on(listen, arguments)?;
    if let Some(name) = &arguments.name {
        let mut named = NamedServer::start(context, name, arguments.reset, serve_options)?;
        // Once other processes can find the server, they can stop it, so start handling signals first.
        let events = Events::listen()?;
        named.announce(context.settings()?)?;
        let gone = attend(context, arguments, events, &named.provisioner, &named.service)?;
        named.stop()?;
        return gone.map_or(Ok(ExitCode::SUCCESS), Err);
    }
    let provisioner = serve_options.encrypt_setups(context.provisioner()?.clone());
    let service = lifecycle::serve(context, &provisioner, serve_options)?;
    if let Some(gone) = attend(context, arguments, Events::listen()?, &provisioner, &service)? {
        lifecycle::stop(context, service)?;
        return Err(gone);
    }
    background::stop_or_keep(context, service)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the server's address and waits for the server to stop. Returns a failure if it stopped on its own.
fn attend(
    context: &Context,
    arguments: &Serve,
    mut events: Events,
    provisioner: &Provisioner,
    service: &Service,
) -> Result<Option<Failure>, Failure> {
    let line = if arguments.json {
        describe(provisioner, service)?
    } else {
        // This URL contains the token, so show it only on a terminal. It must not end up in a log.
        if io::stderr().is_terminal() && context.verbosity == Verbosity::Normal {
            notice!("pgfresh: live page at {}", service.local_address().page_url());
        }
        if let Some(root) = service.root_certificate.as_ref().filter(|_| !context.verbosity.is_quiet()) {
            notice!("pgfresh: TLS root certificate in \"{}\"", root.display());
        }
        service.address(&service.database).url()
    };
    print_address(&line)?;
    events.watch_server(&service.server)?;
    events.watch_leases(&service.leases);
    if is_lifeline() {
        events.watch_lifeline()?;
    }
    let early = events.deliver_signals()?.into_iter().next();
    let event = early.map_or_else(|| events.next(), Event::Signal);
    Ok(match event {
        Event::ServerGone => {
            let why = service.server.end_reason();
            Some(Failure::new("the server went away").detail(format!("The cause: {why}")))
        }
        Event::LeasesFailed => Some(leases_failed()),
        Event::Signal(_) | Event::Ended(_) | Event::LifelineClosed => None,
    })
}

fn print_address(line: &str) -> Result<(), Failure> {
    output::try_print(format_args!("{line}\n")).map_err(|error| output::could_not_print(&error))
}

/// Joins the background server and leases a database there until the lifeline (standard input) closes or a signal
/// arrives.
fn share(context: &Context, as_json: bool) -> Result<ExitCode, Failure> {
    // Building a template, or waiting for another process to build it, can take a long time. The lifeline must be able
    // to end this process even then.
    if is_lifeline() {
        foreground::end_with_lifeline(context.exit.clone())?;
    }
    let RunningServer { about, control, .. } = background::join(context)?;
    let (holder, held) = control.hold()?;
    let request = LeaseRequest { holder: Some(holder.clone()), ..LeaseRequest::default() };
    let LeaseResponse { name: database, jdbc_url, replica_url, .. } = control.lease(&request)?;
    let address = control.address(&database);
    let line = if as_json {
        let ready = Ready {
            url: address.url(),
            page_url: address.page_url(),
            jdbc_url,
            http_url: format!("http://{}:{}/", address.host, address.port),
            host: address.host,
            port: address.port,
            user: address.user,
            password: address.password,
            database: &database,
            version: about.version,
            log: about.log.display().to_string(),
            pid: about.pid,
            replica_url,
            root_certificate: None,
            holder: Some(holder),
        };
        serde_json::to_string(&ready).map_err(|error| Failure::new(error.to_string()))?
    } else {
        address.url()
    };
    // Until this point, a signal kills this process, which also ends the lease.
    let mut events = Events::listen()?;
    print_address(&line)?;
    events.watch_end_of(held)?;
    let early = events.deliver_signals()?.into_iter().next();
    match early.map_or_else(|| events.next(), Event::Signal) {
        Event::ServerGone => Err(Failure::new("the background server went away")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn describe(provisioner: &Provisioner, service: &Service) -> Result<String, Failure> {
    let address = service.address(&service.database);
    let access = service.access();
    let ready = Ready {
        url: address.url(),
        page_url: service.local_address().page_url(),
        jdbc_url: address.jdbc_url(),
        host: address.host,
        port: address.port,
        user: address.user,
        password: address.password,
        database: &address.database,
        http_url: access.http_url(),
        version: provisioner.installation.version().to_string(),
        log: service.server.run().log().display().to_string(),
        pid: service.server.pid(),
        replica_url: service.replica_address().map(|address| address.url()),
        root_certificate: service.root_certificate.as_ref().map(|path| path.display().to_string()),
        holder: None,
    };
    serde_json::to_string(&ready).map_err(|error| Failure::new(error.to_string()))
}

/// Returns true if this process has to exit when standard input closes. That holds for a pipe or a file, but not for
/// `/dev/null`, which service managers use.
fn is_lifeline() -> bool {
    let null = File::open("/dev/null").and_then(|file| file.metadata());
    let ours = io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    match (null, ours) {
        (Ok(null), Ok(ours)) => null.rdev() != ours.rdev() || null.mode() != ours.mode(),
        _ => false,
    }
}
