//! Real stores. Each is a server on a free port, and ends with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::common::{Scene, WAIT_TIMEOUT};

/// Kind of store. An HTTP server is read-only, so tests push templates through its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    File,
    Http,
    S3,
    Gcs,
    Azure,
    Oci,
}

pub(super) const ALL: [Store; 6] =
    [Store::File, Store::Http, Store::S3, Store::Gcs, Store::Azure, Store::Oci];

/// Store that is running.
pub(super) struct RunningStore {
    /// URL for pushes.
    pub(super) writes: String,
    /// URL for downloads.
    pub(super) reads: String,
    /// Environment variables for clients.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) port: Option<u16>,
    /// Folder with the store's files, if the server stores its objects as files.
    pub(super) folder: PathBuf,
    server: Option<Child>,
}

impl Drop for RunningStore {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            drop(server.kill());
            drop(server.wait());
        }
    }
}

/// Returns the path of an installed server. Fails if it isn't installed, so that no test is skipped.
fn installed(path: &str) -> PathBuf {
    let folder = std::env::var_os("PGFRESH_TEST_STORES").map(PathBuf::from).unwrap_or_default();
    let installed = folder.join(path);
    assert!(installed.exists(), "no \"{path}\" in PGFRESH_TEST_STORES: run \"make test\"");
    installed
}

/// Starts a server. Returns the process and its port, which the server prints after `before`.
fn start(command: &mut Command, before: &str) -> (Child, u16) {
    // Both streams go to the same pipe, because some servers use stdout and others stderr.
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (found, finds) = mpsc::channel();
    let before = before.to_owned();
    // The thread continues to read, so that the server can continue to write.
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            let port = line.split_once(&before).and_then(|(_, rest)| {
                let (_, rest) = rest.split_once("127.0.0.1").unwrap_or(("", rest));
                let digits: String = rest
                    .trim_start_matches([':', ' ', '"'])
                    .chars()
                    .take_while(char::is_ascii_digit)
                    .collect();
                digits.parse().ok().filter(|port| *port != 0)
            });
            if let Some(port) = port {
                found.send(port).unwrap_or_default();
            }
        }
    });
    let Ok(port) = finds.recv_timeout(WAIT_TIMEOUT) else {
        drop(child.kill());
        panic!("{command:?} has not started");
    };
    (child, port)
}

impl Store {
    pub(super) fn start(self, scene: &Scene) -> RunningStore {
        let folder = scene.place.join("store");
        fs::create_dir_all(&folder).unwrap();
        match self {
            Self::File => {
                let url = format!("file://{}", folder.display());
                RunningStore {
                    writes: url.clone(),
                    reads: url,
                    variables: Vec::new(),
                    port: None,
                    folder,
                    server: None,
                }
            }
            Self::Http => {
                let mut python = Command::new(installed("python/bin/python"));
                python
                    .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory"])
                    .arg(&folder)
                    .arg("0");
                let (server, port) = start(&mut python, " port ");
                RunningStore {
                    writes: format!("file://{}", folder.display()),
                    reads: format!("http://127.0.0.1:{port}/"),
                    variables: Vec::new(),
                    port: Some(port),
                    folder,
                    server: Some(server),
                }
            }
            Self::S3 => s3(folder),
            Self::Gcs => gcs(folder),
            Self::Azure => azure(folder),
            Self::Oci => oci(folder),
        }
    }
}

fn s3(folder: PathBuf) -> RunningStore {
    let mut moto = Command::new(installed("python/bin/moto_server"));
    let (server, port) = start(moto.args(["-H", "127.0.0.1", "-p", "0"]), "Running on http://");
    let status = Command::new(installed("python/bin/python"))
        .args(["-c", "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method='PUT', headers={'Host': 's3.amazonaws.com'}))"])
        .arg(format!("http://127.0.0.1:{port}/templates"))
        .status()
        .unwrap();
    assert!(status.success());
    RunningStore::of("s3://templates/some/prefix".to_owned(), s3_variables(port), folder, (server, port))
}

/// Returns the environment variables for a server on `port`.
fn s3_variables(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ACCESS_KEY_ID", "accesskey".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "verysecret".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

fn gcs(folder: PathBuf) -> RunningStore {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/python/gcs.py");
    let mut python = Command::new(installed("python/bin/python"));
    let (server, port) = start(python.arg(script).arg("templates"), "Running on http://");
    let url = "gs://templates/some/prefix".to_owned();
    let variables = vec![
        ("GOOGLE_BASE_URL", format!("http://127.0.0.1:{port}")),
        ("GCE_METADATA_HOST", format!("127.0.0.1:{port}")),
    ];
    RunningStore::of(url, variables, folder, (server, port))
}

fn azure(folder: PathBuf) -> RunningStore {
    let mut azurite = Command::new(installed("node/node_modules/.bin/azurite-blob"));
    azurite.args([
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        "0",
        "--inMemoryPersistence",
        "--disableTelemetry",
    ]);
    azurite.arg("--skipApiVersionCheck").current_dir(&folder);
    let (server, port) = start(&mut azurite, "successfully listens on");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/python/container.py");
    let made = Command::new(installed("python/bin/python"))
        .arg(script)
        .args([&port.to_string(), "templates"])
        .status();
    assert!(made.unwrap().success());
    let variables = vec![
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{port}")),
    ];
    let url = "az://templates/prefix".to_owned();
    RunningStore::of(url, variables, folder, (server, port))
}

fn oci(folder: PathBuf) -> RunningStore {
    let config = folder.join("config.yml");
    let text = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: \"{}\"}}, delete: {{enabled: true}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n",
        folder.display()
    );
    fs::write(&config, text).unwrap();
    let mut registry = Command::new("docker-registry");
    let (server, port) = start(registry.arg("serve").arg(config), "listening on");
    let url = oci_url(port);
    RunningStore::of(url, Vec::new(), folder, (server, port))
}

fn oci_url(port: u16) -> String {
    format!("oci://127.0.0.1:{port}/team/templates")
}

impl RunningStore {
    /// Returns a store with the same URL for reads and writes.
    fn of(
        url: String,
        variables: Vec<(&'static str, String)>,
        folder: PathBuf,
        (server, port): (Child, u16),
    ) -> Self {
        Self { writes: url.clone(), reads: url, variables, port: Some(port), folder, server: Some(server) }
    }

    /// Returns the store's URL and variables behind a proxy on `port`.
    pub(super) fn through(&self, port: u16) -> (String, Vec<(&'static str, String)>) {
        let own = self.port.expect("a store with a port");
        let other = |text: &str| text.replace(&format!(":{own}"), &format!(":{port}"));
        (other(&self.reads), self.variables.iter().map(|(name, value)| (*name, other(value))).collect())
    }
}
