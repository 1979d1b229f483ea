use std::net::TcpListener;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::stream::{Socket, Stream};
use crate::testing::run;

/// Size of the send buffer in bytes, smaller than a full TLS record, so that most records are sent in pieces.
const ROOM: usize = 4096;

/// Returns a client that trusts only `certificate`.
fn client(certificate: &ServerCertificate, protocols: &[&[u8]]) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let root = certificate.root().unwrap();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Returns `length` bytes, each different from its neighbors.
fn pattern(length: usize) -> Vec<u8> {
    (0..251).cycle().take(length).collect()
}

/// Returns the two sides of a TCP connection.
fn ends() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Sends `up` in pieces, then reads all incoming bytes in pieces.
fn talk(mut stream: StreamOwned<ClientConnection, TcpStream>, up: &[usize], down: &[usize]) -> Vec<u8> {
    let sent = pattern(up.iter().sum());
    let mut rest = &sent[..];
    for length in up {
        let (now, later) = rest.split_at(*length);
        stream.write_all(now).unwrap();
        rest = later;
    }
    let (mut received, mut sizes) = (Vec::new(), down.iter().cycle());
    loop {
        let mut buffer = vec![0; *sizes.next().unwrap()];
        match stream.read(&mut buffer).unwrap() {
            0 => return received,
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Splits the bytes of both sides at arbitrary places and moves the session between threads at arbitrary times.
    #[test]
    fn tls_bytes_arrive_in_order(
        up in vec(1_usize..40_000, 1..8),
        down in vec(1_usize..40_000, 1..8),
        reads in vec(1_usize..20_000, 1..8),
        moved_after in vec(0_usize..10, 0..3),
    ) {
        let certificate = Arc::new(ServerCertificate::generate().unwrap());
        let (near, far) = ends();
        let connection = client(&certificate, &[]);
        let (sent, answer) = (pattern(up.iter().sum()), pattern(down.iter().sum::<usize>() * 3));
        let talking = thread::spawn({
            let (up, down) = (up.clone(), down.clone());
            move || talk(StreamOwned::new(connection, near), &up, &down)
        });
        let socket = Socket::tcp(far).unwrap();
        sys::set_send_buffer(socket_of(&socket), ROOM).unwrap();
        run(async {
            let mut stream = Stream::new(socket, Vec::new()).unwrap().encrypted(&certificate, &[]).unwrap();
            let (mut received, mut sizes) = (Vec::new(), reads.iter().cycle());
            for round in 0.. {
                let mut buffer = vec![0; *sizes.next().unwrap()];
                let count = stream.read(&mut buffer).await.unwrap();
                received.extend_from_slice(&buffer[..count]);
                if received.len() == sent.len() {
                    break;
                }
                if moved_after.contains(&round) {
                    let (socket, unread) = stream.into_parts();
                    stream = Stream::new(socket, unread).unwrap();
                }
            }
            assert!(received == sent);
            for piece in answer.chunks(*reads.iter().max().unwrap()) {
                stream.write_all(piece).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        prop_assert!(talking.join().unwrap() == answer);
    }
}

fn socket_of(socket: &Socket) -> &TcpStream {
    let Socket::Tcp(stream) = socket else { panic!("not a TCP connection") };
    stream
}

#[test]
fn early_read_bytes_belong_to_tls_handshake() {
    let certificate = Arc::new(ServerCertificate::generate().unwrap());
    let (near, far) = ends();
    let connection = client(&certificate, &[b"postgresql"]);
    let talking = thread::spawn(move || talk(StreamOwned::new(connection, near), &[9], &[64]));
    let socket = Socket::tcp(far).unwrap();
    run(async {
        let mut stream = Stream::new(socket, Vec::new()).unwrap();
        let mut early = [0; 100];
        stream.read_exact(&mut early).await.unwrap();
        let mut stream = stream.encrypted(&certificate, &early).unwrap();
        let mut sent = [0; 9];
        stream.read_exact(&mut sent).await.unwrap();
        assert_eq!(sent[..], pattern(9));
        assert!(stream.is_encrypted() && stream.tls().unwrap().announced_postgresql());
        assert_eq!(stream.tls().unwrap().certificate_digest().map(<[u8]>::len), Some(32));
        stream.write_all(b"heard").await.unwrap();
        // Drop the socket without closing it first. TLS must still be shut down properly.
    });
    assert_eq!(talking.join().unwrap(), b"heard");
}

proptest! {
    /// If a client sends random bytes instead of a handshake, the result must be an error or a wait for more bytes.
    #[test]
    fn random_bytes_fail_tls_handshake(nonsense in vec(any::<u8>(), 1..2000), cut in any::<prop::sample::Index>()) {
        let certificate = Arc::new(ServerCertificate::generate().unwrap());
        let mut connection = client(&certificate, &[]);
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        let place = cut.index(hello.len());
        // Try random bytes both alone and after the beginning of a handshake.
        for sent in [nonsense.clone(), [&hello[..place], &nonsense].concat()] {
            let (near, far) = ends();
            far.set_nonblocking(true).unwrap();
            if let Ok(socket) = TlsSocket::accept(far, &certificate, &sent) {
                let received = socket.receive(&mut [0; 16]);
                prop_assert!(received.is_err(), "{received:?}");
            }
            drop(near);
        }
    }
}
