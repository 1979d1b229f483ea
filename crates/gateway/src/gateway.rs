//! Starts the gateway's listeners and threads, and closes all sessions on shutdown.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use lease::{Leases, ServerRole};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::budget::Budget;
use crate::connections::ConnectionCount;
use crate::events::{EventLog, EventSource};
use crate::faults::Faults;
use crate::history::StatementHistory;
use crate::http::HttpService;
use crate::listener::Listener;
use crate::state::GatewayState;
use crate::statement_collection::StatementCollection;
use crate::statement_recorder::StatementRecorder;
use crate::statement_tap::Taps;
use crate::transcription::Transcription;
use crate::workers::{self, Threads};
use crate::{Access, Advertised, ServerCertificate, SocketFile};

/// How long sessions have to end when the gateway closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many connections may wait until the gateway accepts them. If the queue is full, the kernel resets TCP connections
/// and refuses Unix ones.
const BACKLOG: i32 = 4096;

/// Options for a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Address to listen on. Port 0 means any free port. The address determines how clients authenticate: see
    /// [`requires_scram`](crate::requires_scram). Programs on other machines can use HTTP only over TLS.
    pub listen: SocketAddr,
    /// Host that clients on other machines should use instead of `listen`.
    pub advertised: Option<Advertised>,
    /// Certificate for TLS. `None` disables TLS.
    pub certificate: Option<Arc<ServerCertificate>>,
    /// Whether to listen on a second port, for replicas. This is the port after `listen`, or any free port if `listen`
    /// uses the last one.
    pub replicas: bool,
    /// Unix socket to listen on in addition to `listen`.
    pub socket: Option<SocketFile>,
    /// Password of every user over TCP, and token of the HTTP API. See [`Access::random_secret`].
    pub secret: String,
    /// History that records the last statements of each lease. `None` records nothing.
    pub history: Option<Arc<StatementHistory>>,
    /// Budget that applies to each test.
    pub budget: Budget,
}

/// Error that prevents the gateway from starting.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The operating system didn't return random numbers for the SCRAM verifier.
    #[error("could not read random numbers")]
    Random(#[source] io::Error),
    /// The gateway couldn't listen on the address.
    #[error("could not listen on {address}")]
    Listen {
        /// Host and port, or the path of a unix socket.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The gateway couldn't start its threads.
    #[error("could not start the threads of the gateway")]
    Threads(#[source] io::Error),
}

impl GatewayError {
    /// Returns advice for the user, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("Another program listens there. Port 0 selects any free port.".to_owned())
            }
            Self::Threads(source) => sys::limit_hint(source).map(str::to_owned),
            Self::Listen { .. } | Self::Random(_) => None,
        }
    }
}

/// A gateway that listens but doesn't serve clients yet. Meanwhile, clients wait in the socket's queue.
#[derive(Debug)]
pub struct BoundGateway {
    access: Arc<Access>,
    listeners: Vec<(ServerRole, Listener)>,
    history: Option<Arc<StatementHistory>>,
    events: EventSource,
    recorder: Arc<StatementRecorder>,
    faults: Arc<Faults>,
}

impl BoundGateway {
    /// Returns the gateway's secret and the addresses of databases.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    /// Returns the source of the event log. The log remains empty until a reader follows it.
    #[must_use]
    pub fn events(&self) -> EventSource {
        self.events.clone()
    }

    /// Returns the recorder for the statements of each lease.
    #[must_use]
    pub fn recorder(&self) -> Arc<StatementRecorder> {
        Arc::clone(&self.recorder)
    }

    /// Returns the faults of all leases.
    #[must_use]
    pub fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults)
    }

    /// Starts serving clients with databases from `leases`, and HTTP requests through `http`, if present.
    ///
    /// # Errors
    /// Returns [`GatewayError::Threads`] if the worker threads can't be started.
    pub fn serve(self, leases: Leases, http: Option<Arc<dyn HttpService>>) -> Result<Gateway, GatewayError> {
        let Self { access, listeners, history, events, recorder, faults } = self;
        let (workers, threads) = workers::start().map_err(GatewayError::Threads)?;
        let state = Arc::new(GatewayState {
            http,
            leases,
            access,
            keys: Arc::default(),
            workers: Arc::new(workers),
            connections: ConnectionCount::new(),
            taps: Arc::new(Taps { events, history, recorder, ..Taps::default() }),
            faults,
        });
        let (closing, receiver) = watch::channel(false);
        for (role, listener) in listeners {
            state.workers.first().spawn(listener.run(role, Arc::clone(&state), receiver.clone()));
        }
        Ok(Gateway { state, closing, threads: Some(threads) })
    }
}

/// A running gateway. Dropping it closes it.
#[derive(Debug)]
pub struct Gateway {
    state: Arc<GatewayState>,
    closing: watch::Sender<bool>,
    threads: Option<Threads>,
}

impl Gateway {
    /// Binds all listening addresses.
    ///
    /// Each session needs two files, so this also raises the process's open file limit as far as the system permits.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is in use or unavailable, or if the system doesn't provide random numbers. After
    /// an error, all listeners are closed.
    pub fn bind(options: GatewayOptions) -> Result<BoundGateway, GatewayError> {
        let GatewayOptions { listen, advertised, certificate, replicas, socket, secret, history, budget } =
            options;
        sys::raise_open_file_limit();
        let cannot = |address: String| |source| GatewayError::Listen { address, source };
        let bind = |listen: SocketAddr| {
            let bound = TcpListener::bind(listen).and_then(|tcp| {
                sys::keep_alive(&tcp)?;
                sys::set_backlog(&tcp, BACKLOG)?;
                Ok((local_address(tcp.local_addr()?), Listener::Tcp(tcp)))
            });
            bound.map_err(cannot(listen.to_string()))
        };
        let (address, tcp) = bind(listen)?;
        let mut listeners = vec![(ServerRole::Primary, tcp)];
        let next = if listen.port() == 0 { Some(0) } else { listen.port().checked_add(1) };
        let next = SocketAddr::new(listen.ip(), next.unwrap_or(0));
        let replica = replicas.then(|| bind(next)).transpose()?;
        let replica = replica.map(|(address, tcp)| {
            listeners.push((ServerRole::Replica, tcp));
            address
        });
        if let Some(path) = socket.as_ref().map(SocketFile::path) {
            let bound = UnixListener::bind(&path).and_then(|unix| {
                sys::set_backlog(&unix, BACKLOG)?;
                Ok(unix)
            });
            let unix = bound.map_err(cannot(path.display().to_string()))?;
            listeners.push((ServerRole::Primary, Listener::Unix(unix, path)));
        }
        let access = Access::new(secret, address, socket).with_advertised(advertised).with_replica(replica);
        let access = access.with_authentication_for(listen, certificate).map_err(GatewayError::Random)?;
        Ok(BoundGateway {
            access: Arc::new(access),
            listeners,
            history,
            events: EventSource::default(),
            recorder: Arc::new(StatementRecorder::new(budget)),
            faults: Arc::default(),
        })
    }

    /// Returns the host and port for reaching the gateway from this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.state.access.address()
    }

    /// Returns the gateway's secret and the addresses of databases.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.state.access
    }

    /// Returns a log of the events in all future sessions.
    #[must_use]
    pub fn follow(&self) -> EventLog {
        self.state.taps.events.follow()
    }

    /// Returns a collection of the statements in all future sessions.
    #[must_use]
    pub fn collect(&self) -> Arc<StatementCollection> {
        self.state.taps.events.collect()
    }

    /// Returns the transcription of all sessions that begin before the transcription is finished, except replication
    /// sessions.
    #[must_use]
    pub fn transcribe(&self) -> Arc<Transcription> {
        self.state.taps.transcribe()
    }

    /// Returns the faults of all leases.
    #[must_use]
    pub fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.state.faults)
    }

    /// Returns how long there has been no open connection, or `None` while there is one.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.state.connections.idle()
    }

    /// Terminates all sessions within three seconds. Each client receives the error 57P01.
    ///
    /// # Panics
    ///
    /// Panics if called within an asynchronous runtime.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        // Each session holds a receiver of this channel until the session ends.
        let all = async { timeout(CLOSE_TIMEOUT, self.closing.closed()).await };
        if self.state.workers.first().block_on(all).is_err() {
            tracing::warn!("sessions are still there {CLOSE_TIMEOUT:?} after the gateway was closed");
        }
        drop(self.threads.take());
    }
}

/// Returns the address for reaching a listener on `address` from this machine: the loopback address in the case of a
/// wildcard such as 0.0.0.0.
fn local_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
