//! Opening and closing the gateway.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lease::Leases;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Access;
use crate::http::Control;
use crate::ledger::Ledger;
use crate::listener::Listener;
use crate::presence::Presence;
use crate::recent::{Kept, Recent};
use crate::session::Door;
use crate::tap::Taps;
use crate::workers::{self, Threads};

/// How long sessions may take to hear that it is over.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where to listen, and for whom.
#[derive(Debug, Clone)]
pub struct Options {
    /// An address; port 0 is any that is free. Beyond loopback clients prove by SCRAM that they know the secret, and there
    /// is no HTTP for others than this machine's.
    pub listen: SocketAddr,
    /// The file of a unix socket, in a directory closed to others: whoever reaches it needs no password.
    pub socket: Option<PathBuf>,
    /// The password of every user over TCP, and the token of HTTP; see [`Access::random_secret`].
    pub secret: String,
    /// The directory of the server's own socket, for clients that want nothing in their way.
    pub directory: PathBuf,
    /// What becomes of a database whose holder says that its test failed.
    pub failed: Failed,
}

/// What becomes of the databases of failed tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Failed {
    /// The same as of all others.
    #[default]
    Release,
    /// They stay leased, and [`Gateway::failed`] names them.
    Keep,
    /// The same, and whoever said so hears where they are: this server is going to last.
    KeepAndTell,
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
                Some("Somebody else listens there; port 0 is any that is free.".to_owned())
            }
            Self::Listen { .. } | Self::Threads(_) | Self::Random(_) => None,
        }
    }
}

/// An open gateway. Dropping it closes it.
#[derive(Debug)]
pub struct Gateway {
    access: Arc<Access>,
    closing: watch::Sender<bool>,
    presence: Presence,
    taps: Arc<Taps>,
    workers: Arc<workers::Workers>,
    threads: Option<Threads>,
}

impl Gateway {
    /// Binds all addresses, and then begins to serve `leases`.
    ///
    /// Raises the process's limit of open files as far as it may: a session takes two.
    ///
    /// # Errors
    /// Nothing is left of the attempt.
    pub fn open(leases: Leases, options: Options) -> Result<Self, GatewayError> {
        let Options { listen, socket, secret, directory, failed } = options;
        sys::raise_files();
        let cannot = |address: String| |source| GatewayError::Listen { address, source };
        let tcp = TcpListener::bind(listen).map_err(cannot(listen.to_string()))?;
        let address = near(tcp.local_addr().map_err(cannot(listen.to_string()))?);
        let mut listeners = vec![Listener::Tcp(tcp)];
        if let Some(path) = &socket {
            let unix = UnixListener::bind(path).map_err(cannot(path.display().to_string()))?;
            listeners.push(Listener::Unix(unix, path.clone()));
        }
        let verifier = Access::verifier_for(listen, &secret).map_err(GatewayError::Random)?;
        let (workers, threads) = workers::start().map_err(GatewayError::Threads)?;
        let (access, workers) =
            (Arc::new(Access::new(secret, address, socket, directory, verifier)), Arc::new(workers));
        let presence = Presence::new();
        let recent = (failed != Failed::Release).then(Recent::default);
        let taps = Arc::new(Taps { recent, ..Taps::default() });
        let control = Arc::new(Control::new(leases.clone(), Arc::clone(&access), failed, Arc::clone(&taps)));
        let door = Arc::new(Door {
            control,
            leases,
            access: Arc::clone(&access),
            keys: Arc::default(),
            workers: Arc::clone(&workers),
            presence: presence.clone(),
            taps: Arc::clone(&taps),
        });
        let (closing, receiver) = watch::channel(false);
        for listener in listeners {
            workers.first().spawn(listener.run(Arc::clone(&door), receiver.clone()));
        }
        Ok(Self { access, closing, presence, taps, workers, threads: Some(threads) })
    }

    /// Host and port by which programs on this machine reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.access.address()
    }

    /// The secret, and the addresses of databases.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The databases of failed tests that were kept.
    #[must_use]
    pub fn failed(&self) -> Vec<Kept> {
        self.taps.recent.as_ref().map_or_else(Vec::new, Recent::kept)
    }

    /// Takes note of databases that another gateway has kept, where such are kept at all.
    pub fn remember(&self, kept: Vec<Kept>) {
        let Some(recent) = &self.taps.recent else { return };
        for kept in kept {
            recent.keep(kept);
        }
    }

    /// Follows all sessions that begin from now on.
    #[must_use]
    pub fn follow(&self) -> Ledger {
        self.taps.ledger.get_or_init(Ledger::default).clone()
    }

    /// How long no connection has been open; `None` while one is.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.presence.idle()
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
        let all = async { timeout(PATIENCE, self.closing.closed()).await };
        let _ = self.workers.first().block_on(all);
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
