use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
#[ignore = "binary_ends_with_its_process runs and kills it"]
fn process_that_joins_and_waits() {
    Server::of_this_process().unwrap();
    println!("joined");
    thread::sleep(Duration::from_hours(1));
}
