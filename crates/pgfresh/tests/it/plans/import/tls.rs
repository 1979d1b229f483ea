//! Tests that the import's connection is encrypted, with libpq's modes.

use std::fs;

use crate::common::serve::Serve;
use crate::common::{Outcome, Scene, User, finish};

/// Imports statistics from the server that `serve` runs.
fn import(serve: &Serve, host: &str, parameters: &str) -> Outcome {
    let scene = Scene::new(User::Ourselves);
    let url = format!("postgresql://postgres@{host}:{}/postgres?{parameters}", serve.ready["port"]);
    let mut command = scene.pgfresh(["template", "import", "--statistics", &url]);
    command.env("PGPASSWORD", serve.secret());
    finish(command)
}

#[test]
fn import_has_the_modes_of_libpq() {
    let mut serve = Serve::at(Scene::new(User::Ourselves), ["--tls"]);
    let other = Serve::at(Scene::new(User::Ourselves), ["--tls"]);
    let root = |serve: &Serve| serve.ready["root_certificate"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    // Both root certificates have the same name, so only the signature distinguishes them.
    let wrong = folder.path().join("wrong root.crt");
    fs::copy(root(&other), &wrong).unwrap();
    let (root, wrong) = (root(&serve), wrong.to_str().unwrap().replace(' ', "%20"));
    for (host, parameters) in [
        ("127.0.0.1", "sslmode=disable".to_owned()),
        ("127.0.0.1", "connect_timeout=100".to_owned()),
        ("127.0.0.1", "sslmode=require&sslnegotiation=direct".to_owned()),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={root}")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={root}")),
    ] {
        let outcome = import(&serve, host, &parameters);
        assert!(
            outcome.code == Some(0) && outcome.stdout.starts_with("{\n \"format\":1,"),
            "{parameters} {outcome}"
        );
    }
    for (parameters, expected) in [
        (format!("sslmode=require&sslrootcert={wrong}"), "invalid peer certificate"),
        (format!("sslmode=verify-ca&sslrootcert={wrong}"), "invalid peer certificate"),
        (format!("sslmode=verify-full&sslrootcert={wrong}"), "invalid peer certificate"),
        ("sslmode=verify-full".to_owned(), "needs the certificate of an authority"),
        ("sslrootcert=system".to_owned(), ""),
        ("sslmode=verify-ca&sslrootcert=/none".to_owned(), "cannot use \"/none\": No such file"),
    ] {
        let outcome = import(&serve, "localhost", &parameters);
        assert!(outcome.code == Some(1) && outcome.stderr.contains(expected), "{parameters} {outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
    }
    assert!(serve.end());
}

#[test]
fn import_needs_tls_if_the_url_does() {
    let serve = Serve::at(Scene::new(User::Ourselves), [""; 0]);
    let outcome = import(&serve, "127.0.0.1", "sslmode=require");
    assert!(outcome.stderr.contains("server does not support TLS"), "{outcome}");
    assert_eq!(import(&serve, "127.0.0.1", "sslmode=prefer").code, Some(0));
}

#[test]
fn passwords_come_from_the_password_file() {
    use std::os::unix::fs::PermissionsExt;
    let serve = Serve::at(Scene::new(User::Ourselves), [""; 0]);
    let scene = Scene::new(User::Ourselves);
    let port = &serve.ready["port"];
    let file = scene.write(".pgpass", &format!("127.0.0.1:{port}:postgres:postgres:{}\n", serve.secret()));
    let url = format!("postgresql://postgres@127.0.0.1:{port}/postgres");
    for (mode, expected) in [(0o644, "set its mode to 600"), (0o600, "")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let outcome = scene.run(["template", "import", "--statistics", &url]);
        assert_eq!(outcome.code, Some(i32::from(mode == 0o644)), "{outcome}");
        assert!(outcome.stderr.contains(expected), "{outcome}");
    }
    fs::remove_file(file).unwrap();
    let outcome = scene.run(["template", "import", "--statistics", &url]);
    assert!(outcome.stderr.contains("cannot connect to 127.0.0.1:"), "{outcome}");
}
