//! Opening and closing the gateway.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use lease::Leases;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::budget::Budget;
use crate::connections::ConnectionCount;
use crate::events::{EventLog, EventSource};
use crate::history::StatementHistory;
use crate::http::HttpService;
use crate::listener::Listener;
use crate::state::GatewayState;
use crate::statement_recorder::StatementRecorder;
use crate::tap::Taps;
use crate::workers::{self, Threads};
use crate::{Access, Advertised, ServerCertificate, SocketFile};

/// How long sessions may take to hear that it is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where to listen, and for whom.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// An address; port 0 is any that is free. See [`demands_proof`](crate::demands_proof); other machines than this one
    /// have HTTP by TLS only.
    pub listen: SocketAddr,
    /// What clients on other machines are told instead of that.
    pub advertised: Option<Advertised>,
    /// What TLS is offered with, if it is.
    pub certificate: Option<Arc<ServerCertificate>>,
    /// A unix socket to listen on as well.
    pub socket: Option<SocketFile>,
    /// The password of every user over TCP, and the token of HTTP; see [`Access::random_secret`].
    pub secret: String,
    /// Where the last statements of each lease go, if anywhere.
    pub history: Option<Arc<StatementHistory>>,
    /// What each test may do.
    pub budget: Budget,
}

/// There is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// There is no randomness for what protects the secret.
    #[error("could not read random numbers")]
    Random(#[source] io::Error),
    /// The address cannot be had.
    #[error("could not listen on {address}")]
    Listen {
        /// Host and port, or the file of a unix socket.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// There are no threads.
    #[error("could not start the threads of the gateway")]
    Threads(#[source] io::Error),
}

impl GatewayError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("Another program listens there; port 0 is any that is free.".to_owned())
            }
            Self::Threads(source) => sys::remedy(source).map(str::to_owned),
            Self::Listen { .. } | Self::Random(_) => None,
        }
    }
}

/// A gateway that listens but does not serve yet: clients that connect wait in the socket's queue.
#[derive(Debug)]
pub struct BoundGateway {
    access: Arc<Access>,
    listeners: Vec<Listener>,
    history: Option<Arc<StatementHistory>>,
    events: EventSource,
    recorder: Arc<StatementRecorder>,
}

impl BoundGateway {
    /// The secret, and the addresses of databases.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    /// Where it is noted what sessions run, if that is wanted.
    #[must_use]
    pub fn events(&self) -> EventSource {
        self.events.clone()
    }

    /// What each lease has run, where that is recorded.
    #[must_use]
    pub fn recorder(&self) -> Arc<StatementRecorder> {
        Arc::clone(&self.recorder)
    }

    /// Begins to serve `leases`, and HTTP if there is something that serves it.
    pub fn serve(self, leases: Leases, http: Option<Arc<dyn HttpService>>) -> Result<Gateway, GatewayError> {
        let Self { access, listeners, history, events, recorder } = self;
        let (workers, threads) = workers::start().map_err(GatewayError::Threads)?;
        let state = Arc::new(GatewayState {
            http,
            leases,
            access,
            keys: Arc::default(),
            workers: Arc::new(workers),
            connections: ConnectionCount::new(),
            taps: Arc::new(Taps { events, history, recorder }),
        });
        let (closing, receiver) = watch::channel(false);
        for listener in listeners {
            state.workers.first().spawn(listener.run(Arc::clone(&state), receiver.clone()));
        }
        Ok(Gateway { state, closing, threads: Some(threads) })
    }
}

/// An open gateway. Dropping it closes it.
#[derive(Debug)]
pub struct Gateway {
    state: Arc<GatewayState>,
    closing: watch::Sender<bool>,
    threads: Option<Threads>,
}

impl Gateway {
    /// Binds all addresses.
    ///
    /// Raises the process's limit of open files as far as it may: a session takes two.
    ///
    /// # Errors
    /// Nothing is left of the attempt.
    pub fn bind(options: GatewayOptions) -> Result<BoundGateway, GatewayError> {
        let GatewayOptions { listen, advertised, certificate, socket, secret, history, budget } = options;
        sys::raise_files();
        let cannot = |address: String| |source| GatewayError::Listen { address, source };
        let tcp = TcpListener::bind(listen).map_err(cannot(listen.to_string()))?;
        sys::keep_alive(&tcp).map_err(cannot(listen.to_string()))?;
        let address = near(tcp.local_addr().map_err(cannot(listen.to_string()))?);
        let mut listeners = vec![Listener::Tcp(tcp)];
        if let Some(path) = socket.as_ref().map(SocketFile::path) {
            let unix = UnixListener::bind(&path).map_err(cannot(path.display().to_string()))?;
            listeners.push(Listener::Unix(unix, path));
        }
        let access = Access::new(secret, address, socket).advertised_as(advertised);
        let access = access.for_clients_on(listen, certificate).map_err(GatewayError::Random)?;
        Ok(BoundGateway {
            access: Arc::new(access),
            listeners,
            history,
            events: EventSource::default(),
            recorder: Arc::new(StatementRecorder::new(budget)),
        })
    }

    /// Host and port by which programs on this machine reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.state.access.address()
    }

    /// The secret, and the addresses of databases.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.state.access
    }

    /// Follows all sessions that begin from now on.
    #[must_use]
    pub fn follow(&self) -> EventLog {
        self.state.taps.events.follow()
    }

    /// How long no connection has been open; `None` while one is.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.state.connections.idle()
    }

    /// Ends all sessions, each with an error that says so (57P01). Takes three seconds at most. Not to be called from
    /// within a runtime.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        // Each session holds a receiver until it has ended.
        let all = async { timeout(CLOSE_TIMEOUT, self.closing.closed()).await };
        if self.state.workers.first().block_on(all).is_err() {
            tracing::warn!("sessions are still there {CLOSE_TIMEOUT:?} after the gateway was closed");
        }
        drop(self.threads.take());
    }
}

/// Where programs on this machine reach what listens on `address`, which may be all of its addresses.
fn near(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
