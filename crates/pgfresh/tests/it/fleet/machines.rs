//! Simulates a network with a machine for each pgfresh and a load balancer in front of them, like pods behind a
//! service.
//!
//! ```text
//! clients, HAProxy 203.0.113.1:5432 ──┬── 198.51.100.2:5432   pgfresh in its network namespace
//!                                     ├── 198.51.100.6:5432   another pgfresh
//!                                     └── …
//! ```
//! The network ends with the thread that has made it and with the processes in it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::common::leftovers::postmaster_of;
use crate::common::{Scene, User, end_of, finish, ground, line_of};

/// Password and token for all replicas.
pub(super) const SECRET: &str = "hush";
/// The load balancer's address.
pub(super) const BALANCER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 5432);
/// A client's timeout for HTTP responses.
const HTTP_TIMEOUT: Duration = Duration::from_secs(20);

/// SQL for the template of all leases.
const TEMPLATE: &str =
    "CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item VALUES (1, 'one')";

/// Script that waits until standard input announces a network cable, takes an address, and becomes pgfresh.
const MACHINE: &str = r#"
echo waiting
read -r cable
ip link set lo up
ip address add "$1/30" dev eth0
ip link set eth0 up
shift
exec "$@"
"#;

/// Runs `play` in a thread with its own network, and fails if `play` fails.
pub(super) fn in_a_network(play: impl FnOnce() + Send) {
    let name = thread::current().name().unwrap_or("fleet").to_owned();
    thread::scope(|scope| {
        let enter = || {
            // A child process makes the network namespace, which lasts as long as this thread
            // and its child processes.
            let mut maker = Command::new("unshare");
            maker.args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"]);
            let mut maker = maker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            assert_eq!(line_of(maker.stdout.take().unwrap()), "up\n");
            let network = File::open(format!("/proc/{}/ns/net", maker.id())).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            drop(maker.stdin.take());
            end_of(&mut maker, "its standard input is closed");
            play();
        };
        let played = thread::Builder::new().name(name).spawn_scoped(scope, enter).unwrap();
        if let Err(panic) = played.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn ip(words: &str) {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "ip {words}\n{outcome}");
}

/// Certificate for all addresses, and the client configuration that trusts the certificate.
pub(super) struct Certificate {
    chain: String,
    key: String,
    client: Arc<ClientConfig>,
}

impl Certificate {
    fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a team");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = addresses.into_iter().map(|address| address.to_string()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &root).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(root.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        Self { chain: certificate.pem(), key: key.serialize_pem(), client: Arc::new(client) }
    }

    /// Sends an HTTPS request to `address` in a new connection. Returns status and body.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub(super) fn ask(&self, address: SocketAddr, request: &str, body: &str) -> io::Result<(u16, Value)> {
        let name = ServerName::from(address.ip());
        let connection = ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, HTTP_TIMEOUT)?;
        stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut stream = StreamOwned::new(connection, stream);
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {SECRET}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.get(9..12).and_then(|code| code.parse().ok());
        let (Some(status), Some((_, body))) = (status, answer.split_once("\r\n\r\n")) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok((status, serde_json::from_str(body).unwrap_or_default()))
    }
}

/// Machine that runs pgfresh, like a pod in the chart: it listens on all addresses, and advertises its own.
pub(super) struct Replica {
    pub(super) address: SocketAddr,
    cable: String,
    /// pgfresh's process, or `None` after its end.
    child: Mutex<Option<Child>>,
    pid: Pid,
    /// Scene, which is dropped last and checks that nothing is left.
    _scene: Scene,
}

impl Replica {
    fn start(number: u8, certificate: &Certificate) -> Self {
        let scene = Scene::new(User::Ourselves);
        scene.write("template.sql", TEMPLATE);
        let chain = scene.write("tls.crt", &certificate.chain);
        let key = scene.write("tls.key", &certificate.key);
        let address = address(number);
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-euc", MACHINE, "sh", &address.ip().to_string()]);
        command.arg(ground::program()).args(["serve", "--json", "--listen=0.0.0.0", "--port=5432"]);
        command.arg(format!("--advertise={address}"));
        command.arg("--tls-cert").arg(chain).arg("--tls-key").arg(key).args(["--sql", "template.sql"]);
        scene.set(&mut command);
        command.env("PGFRESH_PASSWORD", SECRET).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        assert_eq!(line_of(&mut stdout), "waiting\n");
        let cable = format!("cable{number}");
        ip(&format!("link add {cable} type veth peer name eth0 netns {}", child.id()));
        ip(&format!("address add 198.51.100.{}/30 dev {cable}", number * 4 + 1));
        ip(&format!("link set {cable} up"));
        child.stdin.as_mut().unwrap().write_all(b"cable\n").unwrap();
        // pgfresh has printed its address, so it accepts connections.
        line_of(&mut stdout);
        let pid = Pid::from_child(&child);
        Self { address, cable, child: Mutex::new(Some(child)), pid, _scene: scene }
    }

    /// Sends SIGTERM, as Kubernetes does to end a pod.
    pub(super) fn terminate(&self) {
        kill_process(self.pid, Signal::TERM).unwrap();
    }

    /// Sends SIGKILL, as the kernel does when the machine runs out of memory.
    pub(super) fn kill(&self) {
        kill_process(self.pid, Signal::KILL).unwrap();
    }

    pub(super) fn kill_postgres(&self) {
        let owner = self.pid.as_raw_nonzero().get().unsigned_abs();
        assert!(postmaster_of(owner).expect("a postmaster").kill());
    }

    /// Disconnects the machine as if it had lost power: it sends neither packets nor errors.
    pub(super) fn unplug(&self) {
        ip(&format!("link set {} down", self.cable));
    }

    /// Waits until pgfresh ends. Returns the exit code, or `None` if a signal has ended pgfresh.
    pub(super) fn code(&self) -> Option<i32> {
        let mut child = self.child.lock().unwrap().take().expect("a replica that has not ended");
        end_of(&mut child, "of a replica").code()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        if let Some(child) = self.child.lock().unwrap().as_mut() {
            drop(child.stdin.take());
            let status = end_of(child, "its standard input is closed");
            assert!(status.success(), "a replica ended with an error");
        }
    }
}

/// Returns the second of a cable's two addresses.
fn address(number: u8) -> SocketAddr {
    (Ipv4Addr::new(198, 51, 100, number * 4 + 2), 5432).into()
}

/// `HAProxy` process, which forwards TCP and checks each replica's status.
struct Balancer {
    child: Child,
    _scene: Scene,
}

impl Balancer {
    fn start(replicas: &[Replica]) -> Self {
        let scene = Scene::new(User::Ourselves);
        let servers: Vec<_> = replicas
            .iter()
            .map(|replica| format!("    server {} {}\n", replica.cable, replica.address))
            .collect();
        let configuration = format!(
            "defaults\n    mode tcp\n    timeout connect 500ms\n    timeout client 1m\n    timeout server 1m\n    \
             timeout check 500ms\n    retries 3\n    option redispatch 1\n\
             listen leases\n    bind {BALANCER}\n    balance roundrobin\n    option httpchk\n    \
             http-check send meth GET uri /v1/status ver HTTP/1.1 hdr Host {BALANCER} \
             hdr Authorization \"Bearer {SECRET}\" hdr Connection close\n    http-check expect status 200\n    \
             default-server check check-ssl verify none inter 500ms fall 2 rise 1\n\
             {}",
            servers.concat()
        );
        let file = scene.write("haproxy.cfg", &configuration);
        let mut command = Command::new("haproxy");
        command.args(["-db", "-q", "-f"]).arg(&file);
        scene.set(&mut command);
        let path = std::env::var("PATH").unwrap_or_default();
        // Debian installs HAProxy for administrators.
        command.env("PATH", format!("{path}:/usr/sbin"));
        let child = command.spawn().expect("HAProxy, which \"make test\" installs");
        Self { child, _scene: scene }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replicas behind a load balancer.
pub(super) struct Fleet {
    _balancer: Balancer,
    pub(super) replicas: Vec<Replica>,
    pub(super) certificate: Certificate,
}

impl Fleet {
    /// Starts `count` replicas. Call this within [`in_a_network`].
    pub(super) fn start(count: u8) -> Self {
        let certificate =
            Certificate::new((0..count).map(|number| address(number).ip()).chain([BALANCER.ip()]));
        ip(&format!("address add {}/32 dev lo", BALANCER.ip()));
        let replicas: Vec<_> = (0..count).map(|number| Replica::start(number, &certificate)).collect();
        let fleet = Self { _balancer: Balancer::start(&replicas), replicas, certificate };
        crate::common::wait_until("the balancer to listen", || {
            fleet.certificate.ask(BALANCER, "GET /v1/status", "").is_ok_and(|(status, _)| status == 200)
        });
        fleet
    }
}
