use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::stand_in::StandIn;
use crate::server::Server;

#[test]
fn binary_ends_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let binary = StandIn::new(folder.path());
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::lifeline::process_that_joins_and_waits", "--nocapture"])
        .env_clear()
        .envs(binary.environment(r#"{"http_url": "http://127.0.0.1:1/", "password": "x"}"#))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    assert!(
        output.lines().map(Result::unwrap).any(|line| line.ends_with("joined")),
        "the process did not join"
    );
    assert!(!binary.log().contains("ended"), "the binary ended before the process");
    process.kill().unwrap();
    process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !binary.log().contains("ended") {
        assert!(Instant::now() < deadline, "the binary still runs 10 s after the end of the process");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn program_that_is_not_pgfresh_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (binary, id) = (folder.path().join("other"), folder.path().join("id"));
    for (line, message) in
        [("echo garbage", "could not read what"), ("exec >&-", "pgfresh ended with signal: 9")]
    {
        let script = format!("#!/bin/sh\necho $$ >{}\n{line}\nexec sleep 60\n", id.display());
        fs::write(&binary, script).unwrap();
        fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
        let mut environment = StandIn::new(folder.path()).environment("");
        environment.insert("PGFRESH_BIN".into(), binary.clone().into());
        let error = Server::join(&environment).err().unwrap();
        assert!(error.message.starts_with(message), "{error}");
        let id = fs::read_to_string(&id).unwrap();
        assert!(!Path::new("/proc").join(id.trim()).exists(), "the program still runs");
    }
}

#[test]
#[ignore = "binary_ends_with_its_process runs and kills it"]
fn process_that_joins_and_waits() {
    Server::of_this_process().unwrap();
    println!("joined");
    thread::sleep(Duration::from_hours(1));
}
