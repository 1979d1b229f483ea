//! Combines a server with its databases, leases and gateway into one service.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::{Api, OnFailure};
use gateway::{
    Access, Advertised, Budget, Gateway, GatewayOptions, KeptDatabase, ServerCertificate, SetupEncryption,
    SocketFile, StatementHistory, StatementRecorder, requires_scram,
};
use lease::{Isolation, LeaseObserver, LeaseOptions, Leases, NameRules, TemplateDatabase};
use server::{Address, AdminConnection, Server};
use template::{Provisioner, Started};

use crate::cli::{Serve, ServiceOptions};
use crate::failure::Failure;
use crate::settings::{PASSWORD, Password, ResolvedSettings};

/// Port number in the file name of the gateway's Unix socket.
const SOCKET_PORT: u16 = 5433;

/// Variable with the URL of the default database's replica.
const REPLICA_URL: &str = "DATABASE_REPLICA_URL";

/// Options for a service.
#[derive(Debug, Clone)]
pub(crate) struct ServeOptions {
    /// TCP port of the gateway. 0 means any free port.
    pub(crate) port: u16,
    pub(crate) listen: IpAddr,
    /// Host in the URLs for clients, if clients can't use the address that the gateway listens on.
    pub(crate) advertised: Option<Advertised>,
    /// The gateway's TLS certificate. Without a certificate, the gateway doesn't offer TLS.
    pub(crate) certificate: Option<Arc<ServerCertificate>>,
    /// The server's password. Without a password, pgfresh generates a random one.
    pub(crate) password: Option<Password>,
    /// True if pgfresh compares each reset database with its template before another test gets the database.
    pub(crate) paranoid: bool,
    /// Whether to keep or release the databases of failed tests.
    pub(crate) on_failure: OnFailure,
    /// Names of the databases that clients can create by connecting to them.
    pub(crate) names: NameRules,
    /// Isolation of leases whose clients don't request a specific one.
    pub(crate) isolation: Isolation,
    /// How long a database remains leased after its last session ends.
    pub(crate) linger: Duration,
    /// Identifies the test command. `None` if pgfresh doesn't run one.
    pub(crate) suite: Option<String>,
    /// Budget for each test.
    pub(crate) budget: Budget,
    /// Reads each database at the end of its lease.
    pub(crate) observer: Option<LeaseObserver>,
}

impl ServeOptions {
    /// Creates options from the settings' lease rules and password.
    pub(crate) fn new(settings: &ResolvedSettings) -> Result<Self, Failure> {
        Ok(Self {
            port: 0,
            listen: Ipv4Addr::LOCALHOST.into(),
            advertised: None,
            certificate: None,
            password: settings.password.clone()?,
            paranoid: false,
            on_failure: OnFailure::Release,
            names: settings.names.clone(),
            isolation: settings.isolation,
            linger: settings.linger,
            suite: None,
            budget: settings.budget,
            observer: None,
        })
    }

    /// Sets the address, the port and the certificate. If other machines can reach the address, the user must have
    /// set a password.
    pub(crate) fn on(self, listen: IpAddr, arguments: &Serve) -> Result<Self, Failure> {
        if !listen.is_loopback() && self.password.is_none() {
            let failure = Failure::new(format!("cannot listen on {listen} without a password"));
            return Err(failure.hint(format!("Set {PASSWORD} to a password, and give it to the clients.")));
        }
        let certificate = match (&arguments.tls_cert, &arguments.tls_key, self.certificate) {
            (Some(certificate), Some(key), _) => Some(ServerCertificate::read(certificate, key)?.into()),
            (_, _, None) if requires_scram(listen) => Some(ServerCertificate::generate()?.into()),
            (_, _, certificate) => certificate,
        };
        Ok(Self {
            port: arguments.port,
            listen,
            advertised: arguments.advertise.clone(),
            certificate,
            ..self
        })
    }

    /// Identifies the command that this service is for, so that pgfresh can learn how many databases the command needs.
    pub(crate) fn for_command(self, command: &[OsString]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for word in command {
            hasher.update(word.as_encoded_bytes()).update(&[0]);
        }
        Self { suite: Some(hasher.finalize().to_hex()[..16].to_owned()), ..self }
    }

    /// Sets the TCP port. 0 means any free port.
    pub(crate) fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// If clients can use TLS, lets template setups use TLS, too. Setups can then connect with the same options as the
    /// tests, such as "sslmode=require".
    pub(crate) fn encrypt_setups(&self, provisioner: Provisioner) -> Provisioner {
        match &self.certificate {
            Some(certificate) => {
                provisioner.with_encryption(Arc::new(SetupEncryption(Arc::clone(certificate))))
            }
            None => provisioner,
        }
    }

    /// Applies the command line's options for safety checks and TLS.
    pub(crate) fn with(self, arguments: &ServiceOptions) -> Result<Self, Failure> {
        let on_failure = if arguments.keep_failed { OnFailure::Keep } else { OnFailure::Release };
        let certificate = arguments.tls.then(ServerCertificate::generate).transpose()?.map(Arc::new);
        Ok(Self { paranoid: arguments.paranoid, on_failure, certificate, ..self })
    }
}

/// A running service: a server, a gateway and leases.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) gateway: Gateway,
    /// Failed tests' statements and databases. `None` if the service doesn't keep databases.
    history: Option<Arc<StatementHistory>>,
    /// Records the statements of each test, for profiles.
    pub(crate) recorder: Arc<StatementRecorder>,
    pub(crate) leases: Leases,
    /// The server the gateway connects to.
    pub(crate) server: Server,
    /// Database in the default URL.
    pub(crate) database: String,
    /// Path of the root certificate, if pgfresh generated one.
    pub(crate) root_certificate: Option<PathBuf>,
    /// How long each part of the startup took.
    pub(crate) times: Times,
}

/// How long each part of a server's startup took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Time to look up the template, including the build if it was missing.
    pub(crate) template: Duration,
    /// Time from when the template is available until the server's first response.
    pub(crate) boot: Duration,
}

/// Returns the databases that leases can copy: the templates' own databases, plus template1 for clients that want an
/// empty database.
fn templates(names: &[String]) -> Vec<TemplateDatabase> {
    let names = names.iter().map(String::as_str).chain(["template1"]);
    names.map(|name| TemplateDatabase { name: name.to_owned(), database: name.to_owned() }).collect()
}

/// Returns the failure for a service whose leases are in an unknown state after a panic.
pub(crate) fn leases_failed() -> Failure {
    Failure::new("an internal error has stopped the service")
        .detail("pgfresh no longer knows which databases are fresh.".to_owned())
        .hint("Please report it, with the messages above.".to_owned())
}

/// Opens leases for the server's templates. The leases end with the server. In debug builds, a test can make the lease
/// table panic.
fn open_leases(
    server: &Server,
    options: LeaseOptions,
    session: Option<AdminConnection>,
) -> Result<Leases, Failure> {
    let leases = Leases::open(options, session)?;
    let ending = leases.clone();
    server.on_end(move || ending.server_gone())?;
    #[cfg(debug_assertions)]
    if let Some(actions) = std::env::var("PGFRESH_TEST_PANIC").ok().and_then(|actions| actions.parse().ok()) {
        leases.plant_panic(actions);
    }
    Ok(leases)
}

/// Makes leases under a template's name outlive their sessions. A suite may migrate a database in one process and test
/// the database in another. A rollback would undo the migration, so this applies only to [`Isolation::Clone`].
fn retain(leases: &Leases, templates: &[String], isolation: Isolation) {
    for name in templates.iter().filter(|_| isolation == Isolation::Clone) {
        leases.retain(name);
    }
}

/// Transcribes all sessions if a test of a debug build requests that.
#[cfg(debug_assertions)]
fn transcribe_for_test(gateway: &Gateway) {
    if let Some(folder) = std::env::var_os("PGFRESH_TEST_TRANSCRIBE") {
        crate::test_transcripts::begin(gateway, folder.into());
    }
}

/// Returns the user's password, or a random one if the user didn't set a password.
fn secret(password: Option<Password>) -> Result<String, Failure> {
    match password {
        Some(Password(password)) => Ok(password),
        None => Access::random_secret()
            .map_err(|error| Failure::new(format!("could not read random numbers: {error}"))),
    }
}

/// Writes the root certificate to a file for clients, if pgfresh generated the certificate itself.
fn write_root(certificate: Option<&ServerCertificate>, server: &Server) -> Result<Option<PathBuf>, Failure> {
    let Some(root) = certificate.and_then(ServerCertificate::root) else { return Ok(None) };
    let path = server.run().path().join("root.crt");
    let cannot = |error| Failure::new(format!("could not write \"{}\": {error}", path.display()));
    fs::write(&path, root).map_err(cannot)?;
    // Make the certificate world-readable: it is public, the command may run as another user, and libpq reads the
    // certificate even for "sslmode=require".
    fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(cannot)?;
    Ok(Some(path))
}

impl Service {
    /// Creates a service for the started server and its templates and opens the gateway.
    pub(crate) fn open(
        provisioner: &Provisioner,
        started: Started,
        serve_options: ServeOptions,
    ) -> Result<Self, Failure> {
        let secret = secret(serve_options.password)?;
        let Started { server, session, entry, place, database, templates: names, look_up } = started;
        let times = Times { template: look_up, boot: server.phases().total() };
        // The server's account could replace sockets in its own socket directory, so use a different directory.
        let socket = SocketFile { directory: server.run().address().to_owned(), port: SOCKET_PORT };
        // Persistent databases belong to the user, so don't lease them to clients.
        let is_persistent = server.run().persistent().is_some();
        let templates = if is_persistent { Vec::new() } else { templates(&names) };
        let inward = socket.path();
        let leased_servers = (!is_persistent).then(|| provisioner.for_leased_servers());
        let options = LeaseOptions {
            directory: server.run().socket_directory(),
            data: server.run().data(),
            major: provisioner.installation.version().major,
            budget: place.budget(),
            templates,
            entry,
            names: serve_options.names,
            isolation: serve_options.isolation,
            linger: serve_options.linger,
            suite: serve_options.suite,
            paranoid: serve_options.paranoid,
            provisioner: leased_servers,
            observer: serve_options.observer,
        };
        let leases = open_leases(&server, options, session)?;
        retain(&leases, &names, serve_options.isolation);
        let history = (serve_options.on_failure != OnFailure::Release).then(Arc::<StatementHistory>::default);
        let root_certificate = write_root(serve_options.certificate.as_deref(), &server)?;
        let bound = Gateway::bind(GatewayOptions {
            listen: SocketAddr::new(serve_options.listen, serve_options.port),
            advertised: serve_options.advertised,
            certificate: serve_options.certificate,
            replicas: leases.have_replicas(),
            socket: Some(socket),
            secret,
            history: history.clone(),
            budget: serve_options.budget,
        })?;
        let recorder = bound.recorder();
        let api = Api::new(
            leases.clone(),
            bound.access(),
            serve_options.on_failure,
            history.clone(),
            bound.events(),
            Arc::clone(&recorder),
            bound.faults(),
        );
        server.redirect_internal_connections(&inward, &provisioner.account)?;
        let gateway = bound.serve(leases.clone(), Some(Arc::new(api)))?;
        #[cfg(debug_assertions)]
        transcribe_for_test(&gateway);
        Ok(Self { gateway, history, recorder, leases, server, database, root_certificate, times })
    }

    /// Returns the address of `database`, which is created when its first session starts.
    pub(crate) fn address(&self, database: &str) -> Address {
        self.access().address_of(database)
    }

    /// Returns the address for programs on this machine, even if other clients use a different address.
    pub(crate) fn local_address(&self) -> Address {
        self.access().local_address_of("")
    }

    /// Returns all of the gateway's addresses, together with the secret.
    pub(crate) fn access(&self) -> &Access {
        self.gateway.access()
    }

    /// Returns the address of the default database's replica. Returns `None` if leases don't have replicas.
    pub(crate) fn replica_address(&self) -> Option<Address> {
        self.access().replica_address_for(None, &self.database)
    }

    /// Sets the environment variables for a command that uses this service: the control API's URL (see
    /// [`crate::control`]), and the replica's URL if there is a replica. If pgfresh generated a TLS certificate, also
    /// sets the root certificate's path.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command.env(crate::control::VARIABLE, self.control());
        if let Some(address) = self.replica_address() {
            command.env(REPLICA_URL, address.url());
        }
        if let Some(root) = &self.root_certificate {
            command.env("PGSSLROOTCERT", root);
        }
    }

    /// Returns the address of the HTTP API, including its secret.
    pub(crate) fn control(&self) -> String {
        self.local_address().control_url()
    }

    /// Returns the databases of failed tests.
    pub(crate) fn failed(&self) -> Vec<KeptDatabase> {
        let Some(history) = &self.history else { return Vec::new() };
        history.remove_missing_databases(&self.leases);
        history.kept_databases()
    }

    /// Takes over the databases that an earlier service kept for failed tests.
    pub(crate) fn remember(&self, kept: Vec<KeptDatabase>) {
        let templates: BTreeSet<_> =
            kept.iter().filter_map(|database| database.template.as_deref()).collect();
        for template in templates {
            // Without this template, clients can still read the kept databases and compare them with another template,
            // so continue.
            if let Err(error) = self.leases.take_again(template) {
                tracing::warn!(%error, template, "could not put a template into service again");
            }
        }
        for database in kept {
            self.history.iter().for_each(|history| {
                history.add_kept_database(KeptDatabase { inherited: true, ..database.clone() });
            });
        }
    }

    /// Ends all sessions and returns the server, which the caller must stop immediately.
    pub(crate) fn close(self) -> Server {
        let Self { gateway, leases, server, .. } = self;
        // `gateway.close` waits for all clients, so first reject those that are waiting for a database.
        leases.stop_handing_out();
        gateway.close();
        #[cfg(debug_assertions)]
        crate::test_transcripts::write();
        leases.abandon();
        server
    }
}
