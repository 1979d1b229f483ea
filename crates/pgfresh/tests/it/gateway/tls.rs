//! Tests TLS on the gateway's port: sessions and HTTP, with pgfresh's certificate and with the user's.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SignatureAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::client::{Client, failure, message, packet, query, startup};
use crate::common::scram;
use crate::common::serve::Serve;
use crate::common::{Outcome, Scene, User, as_root, finish, ground, wait_until};

/// Code of an `SSLRequest`.
const SSL_REQUEST: u32 = 80_877_103;

fn serve(options: &[&str]) -> Serve {
    Serve::at(Scene::new(User::Ourselves), options)
}

impl Serve {
    fn root(&self) -> &Path {
        Path::new(self.ready["root_certificate"].as_str().expect("a root certificate"))
    }

    /// Runs psql at `host`, with `words` as further libpq parameters.
    fn psql(&self, host: &str, words: &str) -> Outcome {
        let port = &self.ready["port"];
        let mut psql = Command::new(ground::psql());
        psql.args(["-XAtqc", "\\conninfo", "-c", "SELECT current_database()"]);
        psql.arg(format!("host={host} port={port} user=postgres dbname=tried {words}"));
        psql.env_clear().env("PGPASSWORD", self.secret());
        finish(psql)
    }

    /// Opens a TLS connection without an `SSLRequest`, and trusts this server's root certificate.
    fn direct(&self, protocols: &[&[u8]]) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.root()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // This machine doesn't have the name: the server issues a certificate for each name that a client requests.
        let name = ServerName::try_from("any.name.example").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, Client::knock(&self.address()).stream)
    }

    fn https(&self, request: &str) -> String {
        let mut stream = self.direct(&[b"http/1.1"]);
        let port = &self.ready["port"];
        let head = format!("{request}\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn is_encrypted(outcome: &Outcome) -> bool {
    assert!(outcome.code == Some(0) && outcome.stdout.ends_with("\ntried\n"), "{outcome}");
    outcome.stdout.contains("SSL connection (protocol: TLSv1")
}

#[test]
fn every_sslmode_works_as_with_servers() {
    let serve = serve(&["--tls"]);
    let root = serve.root().display();
    for (host, words, encrypted) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), false),
        ("127.0.0.1", "sslmode=allow".to_owned(), false),
        ("127.0.0.1", String::new(), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", "sslmode=require channel_binding=require".to_owned(), true),
        ("127.0.0.1", "sslmode=require ssl_max_protocol_version=TLSv1.2".to_owned(), true),
        ("127.0.0.1", format!("sslmode=verify-full sslrootcert={root}"), true),
        ("localhost", format!("sslmode=verify-full sslrootcert={root}"), true),
    ] {
        assert_eq!(is_encrypted(&serve.psql(host, &words)), encrypted, "{words}");
    }
    // The file is public, so other accounts can also read it.
    assert_eq!(fs::metadata(serve.root()).unwrap().permissions().mode() & 0o777, 0o644);
    // Sessions on the server's own socket don't need the root certificate.
    let socket =
        serve.https(&format!("POST /v1/databases HTTP/1.1\r\nAuthorization: Bearer {}", serve.secret()));
    assert!(socket.contains("socket_url"), "{socket}");
    // The URL contains the host that the client requested, so the certificate matches it.
    let url = format!("@localhost:{}/", serve.ready["port"]);
    assert!(socket.contains(&url), "{socket}");
}

#[test]
fn a_variable_enables_tls() {
    let scene = Scene::new(User::Ourselves);
    for (value, is_on) in [
        ("1", true),
        ("true", true),
        ("yes", true),
        ("0", false),
        ("false", false),
        ("no", false),
        ("", false),
    ] {
        let mut command = scene.pgfresh(["run", "--", "sh", "-c", "test -f \"$PGSSLROOTCERT\""]);
        command.env("PGFRESH_TLS", value);
        assert_eq!(finish(command).code == Some(0), is_on, "{value}");
    }
}

#[test]
fn requiring_tls_fails_without_tls() {
    let serve = serve(&[]);
    assert!(serve.ready.get("root_certificate").is_none());
    let refused = serve.psql("127.0.0.1", "sslmode=require");
    assert!(refused.stderr.contains("server does not support SSL, but SSL was required"), "{refused}");
    assert!(!is_encrypted(&serve.psql("127.0.0.1", "")));
}

/// Returns a setup that connects with the libpq parameters `words`, fails without TLS, and stores
/// what the server reports.
fn insistent(words: &str) -> String {
    let seen = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    format!("psql '{words}' -Xqc '\\conninfo' -c 'CREATE TABLE made AS {seen}' | grep 'SSL connection'")
}

#[test]
fn a_setup_that_insists_on_tls_has_it() {
    let scene = Scene::new(User::Ourselves);
    for words in ["sslmode=require", "sslmode=verify-full channel_binding=prefer", "sslmode=prefer"] {
        scene.write("input", words);
        // On its own socket, the server sees the client itself.
        let options = ["--tls", "--setup", &insistent(words), "--inputs", "input"];
        assert_eq!(scene.query(&options, "SELECT * FROM made"), "f", "{words}");
    }
    assert_eq!(scene.query(&["--tls", "--setup", &insistent("sslmode=require")], "SELECT * FROM made"), "f");
    let serve = serve(&["--tls", "--setup", &insistent("sslmode=require")]);
    assert!(is_encrypted(&serve.psql("127.0.0.1", "")));
}

#[test]
fn without_tls_such_a_setup_gets_a_hint() {
    const HINT: &str = "HINT:  The setup insists on TLS: append \"?sslmode=disable\" to its URL, or use \"pgfresh run --tls\".";
    let scene = Scene::new(User::Ourselves);
    scene.write("input", "");
    for (setup, has_hint) in [
        ("psql sslmode=require -Xqc 'CREATE TABLE made ()'", true),
        ("psql sslmode=require -Xqc 'CREATE TABLE made ()' || psql -Xqc 'CREATE TABL made ()'", true),
        ("psql -Xqc 'CREATE TABL made ()'", false),
    ] {
        let outcome = scene.run(["template", "build", "--setup", setup, "--inputs", "input"]);
        assert_eq!(outcome.code, Some(1), "{setup}: {outcome}");
        assert_eq!(outcome.stderr.contains(HINT), has_hint, "{setup}: {outcome}");
    }
}

#[test]
fn a_root_verifies_only_its_server() {
    let (one, other) = (serve(&["--tls"]), serve(&["--tls"]));
    let words = format!("sslmode=verify-ca sslrootcert={}", other.root().display());
    let refused = one.psql("127.0.0.1", &words);
    assert!(refused.code != Some(0) && refused.stderr.contains("certificate verify failed"), "{refused}");
    assert!(is_encrypted(&other.psql("127.0.0.1", &words)));
}

/// Makes a root and a certificate for localhost. Returns the paths of the root, the certificate and the key.
fn made(scene: &Scene, algorithm: &'static SignatureAlgorithm) -> [PathBuf; 3] {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "a company");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate_for(algorithm).unwrap()).unwrap();
    let key = KeyPair::generate_for(algorithm).unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &root).unwrap();
    [
        scene.write("company.crt", &root.pem()),
        scene.write("server.crt", &certificate.pem()),
        scene.write("server.key", &key.serialize_pem()),
    ]
}

#[test]
fn a_certificate_of_the_user_is_shown() {
    let scene = Scene::new(User::Ourselves);
    let files = made(&scene, &rcgen::PKCS_ECDSA_P256_SHA256);
    let [root, certificate, key] = files.each_ref().map(|path| path.to_str().unwrap());
    let serve = Serve::at(scene, ["--tls-cert", certificate, "--tls-key", key]);
    assert!(serve.ready.get("root_certificate").is_none());
    let verified = format!("sslmode=verify-full sslrootcert={root}");
    assert!(is_encrypted(&serve.psql("localhost", &verified)));
    // The certificate is for localhost, not for the IP address.
    assert!(serve.psql("127.0.0.1", &verified).stderr.contains("does not match host name"));
}

/// Script that makes a network with a server that other machines could reach, and a client that binds its
/// proof to the certificate.
const BOUND: &str = r#"
ip link set lo up
mkfifo hold
"$0" serve --listen 0.0.0.0 --tls-cert "$2" --tls-key "$3" <hold >url &
exec 3>hold
until [ -s url ]; do sleep 0.01; done
port=$(sed 's|.*:||; s|/.*||' url)
"$PSQL" -XAtqc '\conninfo' "host=localhost port=$port user=postgres dbname=bound sslmode=verify-full sslrootcert=$1 channel_binding=$BINDING" || true
exec 3>&-
wait
"#;

#[test]
fn proofs_are_bound_to_certificates_of_any_kind() {
    if !as_root("make a network") {
        return;
    }
    for (algorithm, binding, said) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "require", "SSL connection"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "require", "SSL connection"),
        // The signature doesn't have a separate hash function, so libpq can't compute a digest of the certificate.
        (&rcgen::PKCS_ED25519, "prefer", "SSL connection"),
        (&rcgen::PKCS_ED25519, "require", "channel binding is required"),
    ] {
        let scene = Scene::new(User::Ourselves);
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-euc", BOUND]).arg(ground::program());
        command.args(made(&scene, algorithm));
        scene.set(&mut command);
        command.env("PGFRESH_PASSWORD", "hush").env("PGPASSWORD", "hush");
        command.env("PSQL", ground::psql()).env("BINDING", binding);
        let outcome = finish(command);
        assert!(outcome.code == Some(0), "{outcome}");
        assert!(outcome.stdout.contains(said) || outcome.stderr.contains(said), "{outcome}");
    }
}

#[test]
fn unusable_certificates_fail_before_the_build() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let [_, certificate, key] = made(&scene, &rcgen::PKCS_ECDSA_P256_SHA256);
    let other = KeyPair::generate().unwrap();
    let (other, empty) = (scene.write("other.key", &other.serialize_pem()), scene.write("empty", ""));
    let missing = scene.directory.join("missing");
    for (certificate, key, said) in [
        (&missing, &key, format!("could not read a certificate from \"{}\": ", missing.display())),
        (&empty, &key, format!("could not read a certificate from \"{}\": ", empty.display())),
        (&key, &key, format!("could not read a certificate from \"{}\": ", key.display())),
        (&certificate, &missing, format!("could not read a private key from \"{}\": ", missing.display())),
        (
            &certificate,
            &certificate,
            format!("could not read a private key from \"{}\": ", certificate.display()),
        ),
        (
            &certificate,
            &other,
            format!("cannot use the certificate in \"{}\" with the key in", certificate.display()),
        ),
    ] {
        let words = [
            "serve".as_ref(),
            "--tls-cert".as_ref(),
            certificate.as_os_str(),
            "--tls-key".as_ref(),
            key.as_os_str(),
        ];
        let outcome = scene.run(words);
        assert!(
            outcome.code == Some(1) && outcome.stderr.starts_with(&format!("pgfresh: {said}")),
            "{outcome}"
        );
        assert!(outcome.stderr.contains("HINT:  "), "{outcome}");
    }
    let half = scene.run(["serve", "--tls-cert", "a"]);
    assert!(half.code == Some(2) && half.stderr.contains("--tls-key"), "{half}");
    assert!(!scene.cache.exists());
}

#[test]
fn direct_tls_requires_alpn() {
    let serve = serve(&["--tls"]);
    let first = |protocols: &[&[u8]]| {
        let mut stream = serve.direct(protocols);
        stream.write_all(&startup("direct", &[])).unwrap();
        let mut header = [0; 5];
        stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body).unwrap();
        (header[0], body)
    };
    let (tag, body) = first(&[b"postgresql"]);
    assert!(tag == b'R' && body.starts_with(&[0, 0, 0, 10]), "a request for a proof");
    for protocols in [&[][..], &[&b"http/1.1"[..]]] {
        let refused = failure(&first(protocols));
        assert_eq!(refused.sqlstate, "08P01");
        assert!(refused.message.contains("without ALPN"), "{refused:?}");
    }
}

#[test]
fn http_comes_by_tls_too() {
    let serve = serve(&["--tls"]);
    let token = serve.secret();
    let asked = serve.https(&format!("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {token}"));
    assert!(asked.starts_with("HTTP/1.1 200 OK\r\n") && asked.contains("\"templates\""), "{asked}");
    let refused = serve.https("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer guess");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    // pgfresh responds to requests from its own pages, and rejects requests from another origin.
    let port = &serve.ready["port"];
    let of = |origin: &str| {
        serve.https(&format!("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {token}\r\nOrigin: {origin}"))
    };
    assert!(of(&format!("https://localhost:{port}")).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(of("https://evil.example").starts_with("HTTP/1.1 403 "));
}

/// Bytes that a client sends instead of a handshake don't affect other clients.
#[test]
fn invalid_handshakes_affect_no_other_client() {
    let serve = serve(&["--tls"]);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let handshakes = (vec(any::<u8>(), 0..300), any::<bool>(), any::<bool>());
    let checked = runner.run(&handshakes, |(nonsense, begins_as_tls, leaves)| {
        let mut client = Client::knock(&serve.address());
        client.send(&packet(SSL_REQUEST, &[]));
        let mut answer = [0];
        client.stream.read_exact(&mut answer).unwrap();
        prop_assert_eq!(answer[0], b'S');
        if begins_as_tls {
            client.send(&[0x16, 3, 1, 0, 40, 1]);
        } else {
            // The startup packet is unencrypted, as if an attacker had inserted it.
            client.send(&startup("slipped_in", &[]));
        }
        // The server might have closed its end already.
        let _ = client.stream.write_all(&nonsense);
        if !leaves {
            let _ = client.stream.shutdown(std::net::Shutdown::Write);
            let mut rest = Vec::new();
            let _ = client.stream.read_to_end(&mut rest);
            // The response is at most a TLS alert.
            prop_assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
        }
        Ok(())
    });
    checked.unwrap();
    assert!(is_encrypted(&serve.psql("127.0.0.1", "sslmode=require")));
    let leases = serve.https(&format!("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {}", serve.secret()));
    assert!(!leases.contains("slipped_in"), "{leases}");
}

/// A client that is still reading earlier messages when pgfresh ends receives them completely, followed by the error.
#[test]
fn the_final_error_follows_all_messages() {
    for encrypted in [false, true] {
        // On a busy machine, the client might not read everything within its second, so try five times.
        assert!((0..5).any(|_| last_message_of_slow_reader(encrypted) == b'E'), "TLS: {encrypted}");
    }
}

/// Returns the tag of the last message that a slow client receives. Each message has 32 bytes, so each piece that
/// pgfresh reads ends with a message.
fn last_message_of_slow_reader(encrypted: bool) -> u8 {
    let mut serve = serve(if encrypted { &["--tls"] } else { &[] });
    let mut watching = Client::open(&serve.address(), serve.secret(), &startup("postgres", &[])).unwrap();
    let mut stream: Box<dyn Late> = if encrypted {
        Box::new(serve.direct(&[b"postgresql"]))
    } else {
        Box::new(Client::knock(&serve.address()).stream)
    };
    rustix::net::sockopt::set_socket_recv_buffer_size(stream.socket(), 1 << 16).unwrap();
    stream.write_all(&startup("late", &[])).unwrap();
    if encrypted {
        scram::prove(&mut stream, serve.secret());
    } else {
        stream.write_all(&message(b'p', format!("{}\0", serve.secret()).as_bytes())).unwrap();
    }
    stream.write_all(&query("SELECT repeat('x', 21) AS abcdef FROM generate_series(1, 3000000)")).unwrap();
    wait_until("a client that is behind", || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
        watching.value(waits).unwrap() == "1"
    });
    let ending = thread::spawn(move || assert!(serve.end()));
    // All sessions receive the error at the same time.
    while watching.read().0 != b'E' {}
    let mut heard = Vec::new();
    let ended = stream.read_to_end(&mut heard);
    ending.join().unwrap();
    let (mut rest, mut last) = (&heard[..], 0);
    while let [tag, length @ ..] = rest {
        let length = u32::from_be_bytes(length[..4].try_into().unwrap()) as usize;
        assert!(b"RSKZTDE".contains(tag) && length < 1000, "{tag} of {length} behind {last}");
        (last, rest) = (*tag, &rest[1 + length..]);
    }
    if ended.is_ok() { last } else { 0 }
}

/// Stream that gives access to its socket.
trait Late: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Late for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Late for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

#[test]
fn clients_get_the_advertised_address() {
    let serve = serve(&["--tls", "--advertise", "db.example:6000"]);
    let (url, port) = (serve.ready["url"].as_str().unwrap(), &serve.ready["port"]);
    assert!(url.ends_with("@db.example:6000/postgres") && *port == 6000, "{url} {port}");
    // Clients on this machine get the address that pgfresh listens on.
    let page = serve.ready["page_url"].as_str().unwrap();
    assert!(page.starts_with("http://127.0.0.1:"), "{page}");
}

#[test]
fn rollback_sessions_work_over_tls() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!(
        "{psql} -Xqc 'CREATE TABLE t (n int)' -c 'INSERT INTO t VALUES (7)'
         {psql} -XAtqc 'SELECT n FROM t' -c '\\conninfo'"
    );
    let words = ["run", "--tls", "--isolation", "rollback", "--env", "PGSSLMODE=verify-full"];
    let outcome =
        scene.run(words.into_iter().chain(["--env", "PGDATABASE=shared", "--", "sh", "-euc", &script]));
    assert!(outcome.code == Some(0) && outcome.stdout.starts_with("7\n"), "{outcome}");
    assert!(outcome.stdout.contains("SSL connection"), "{outcome}");
}
