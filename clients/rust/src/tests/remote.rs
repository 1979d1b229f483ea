//! Tests a server on another machine, which `PGFRESH_CONTROL=https://…` names. 127.0.0.2 stands for the other machine.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::server::{Environment, Server};
use crate::{Database, Error, Options};

const HOST: &str = "127.0.0.2";

/// pgfresh server that other machines can use.
struct Remote {
    folder: PathBuf,
    options: Vec<String>,
    port: u64,
    root: PathBuf,
    process: Option<Child>,
}

impl Remote {
    fn new(folder: &Path, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut remote = Self {
            folder: folder.to_owned(),
            options,
            port: 0,
            root: folder.join("server.crt"),
            process: None,
        };
        remote.restart();
        remote
    }

    /// Starts the server. A restarted server keeps its port.
    fn restart(&mut self) {
        self.stop();
        let binary = env::var_os("PGFRESH_BIN").unwrap_or_else(|| "pgfresh".into());
        let mut process = Command::new(binary)
            .args(["serve", "--json", "--listen", HOST, "--port", &self.port.to_string()])
            .args(&self.options)
            .current_dir(&self.folder)
            .env_remove("PGFRESH_CONTROL")
            .env("PGFRESH_PASSWORD", "far:away")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        self.port = ready["port"].as_u64().unwrap();
        if let Some(root) = ready["root_certificate"].as_str() {
            self.root = root.into();
        }
        self.process = Some(process);
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.wait().unwrap(); // `wait` closes the standard input, so the binary ends.
        }
    }

    fn environment(&self) -> Environment {
        let control = format!("https://:far%3Aaway@{HOST}:{}", self.port);
        [("PGFRESH_CONTROL".into(), control.into()), ("PGSSLROOTCERT".into(), self.root.clone().into())]
            .into()
    }

    fn join(&self) -> Arc<Server> {
        Arc::new(Server::join(&self.environment()).unwrap())
    }

    fn refused(&self, name: &str, value: &str) -> Error {
        let mut environment = self.environment();
        environment.insert(name.into(), value.into());
        Server::join(&environment).err().expect("an error")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lease(server: &Arc<Server>) -> Result<Database, Error> {
    Options::default().lease_from(server)
}

#[tokio::test]
async fn remote_database_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let remote = Remote::new(folder.path(), &[]);
    let database = lease(&remote.join()).unwrap();
    for url in [database.url(), database.jdbc_url()] {
        assert!(url.contains(&format!("{HOST}:{}/{}", remote.port, database.name())), "{url}");
        assert!(url.contains("sslmode=verify-full&sslrootcert=%2F"), "{url}");
    }
    for _ in 0..2 {
        let mut connection = PgConnection::connect(database.url()).await.unwrap();
        connection.execute("CREATE TABLE made ()").await.unwrap();
        connection.close().await.unwrap();
        database.reset().unwrap();
    }
}

#[test]
fn leases_end_with_remote_process() {
    let folder = tempfile::tempdir().unwrap();
    let remote = Remote::new(folder.path(), &[]);
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::remote::process_that_leases_and_waits", "--nocapture"])
        .env_remove("PGFRESH_HOLDER")
        .envs(remote.environment())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap);
    let name = lines.filter_map(|line| Some(line.split_once("leased ")?.1.to_owned())).next().unwrap();
    let server = remote.join();
    let reset = || server.reset(&name, false, None, &crate::Limits::default());
    reset().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let error = loop {
        match reset() {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "the lease has not ended"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert!(error.message.contains("is not leased"), "{error}");
}

#[test]
#[ignore = "leases_end_with_remote_process runs and kills it"]
fn process_that_leases_and_waits() {
    let database = Database::fresh();
    println!("leased {}", database.name());
    thread::sleep(Duration::from_hours(1));
}

#[test]
fn wrong_certificates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut remote = Remote::new(folder.path(), &[]);
    let former = folder.path().join("former.crt");
    fs::copy(&remote.root, &former).unwrap();
    remote.restart();
    let error = remote.refused("PGSSLROOTCERT", former.to_str().unwrap());
    let begin = format!("could not talk to pgfresh at {HOST}:{}: ", remote.port);
    assert!(error.message.starts_with(&begin), "{error}");
    let hint = "PGSSLROOTCERT must name the file of the server's root certificate. \
                pgfresh makes a new one at each start.";
    assert_eq!(error.hint.as_deref(), Some(hint), "{error}");
    let error = remote.refused("PGSSLROOTCERT", "/nowhere/root.crt");
    let begin = "cannot read the certificate \"/nowhere/root.crt\", which PGSSLROOTCERT names: No such file";
    assert!(error.message.starts_with(begin), "{error}");
}

#[test]
fn wrong_passwords_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let remote = Remote::new(folder.path(), &[]);
    let error = remote.refused("PGFRESH_CONTROL", &format!("https://:near@{HOST}:{}", remote.port));
    let text = "the token is missing or wrong\nHINT:  Check the password in PGFRESH_CONTROL.";
    assert_eq!(error.to_string(), text);
}

#[test]
fn unreachable_servers_are_named() {
    let address = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap();
    let control = format!("https://:secret@{address}");
    let error = Server::join(&[("PGFRESH_CONTROL".into(), control.into())].into()).err().unwrap();
    assert!(error.message.starts_with(&format!("could not talk to pgfresh at {address}: ")), "{error}");
    let hint =
        "Check the host and the port in PGFRESH_CONTROL, and that \"pgfresh serve --listen\" runs there.";
    assert_eq!(error.hint.as_deref(), Some(hint), "{error}");
}

#[test]
fn restarted_server_ends_holder() {
    let folder = tempfile::tempdir().unwrap();
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pgfresh \
                 -addext subjectAltName=IP:127.0.0.2 -addext basicConstraints=critical,CA:FALSE \
                 -keyout server.key -out server.crt";
    let made = Command::new("openssl").args(words.split(' ')).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut remote = Remote::new(folder.path(), &["--tls-cert", "server.crt", "--tls-key", "server.key"]);
    let server = remote.join();
    let _database = lease(&server).unwrap();
    remote.restart();
    let error = lease(&server).err().expect("an error");
    assert_eq!(error.hint.as_deref(), Some("The server was restarted. Start the tests again."), "{error}");
}
