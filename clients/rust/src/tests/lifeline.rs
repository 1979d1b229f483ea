use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::stand_in::StandIn;
use crate::server::Server;

#[test]
fn pgfresh_ends_with_the_process_that_started_it_however_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let binary = StandIn::new(folder.path());
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::lifeline::joins_and_stays", "--nocapture"])
        .env_clear()
        .envs(binary.environment(r#"{"http_url": "http://127.0.0.1:1/", "password": "x"}"#))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    assert!(output.lines().map(Result::unwrap).any(|line| line.ends_with("joined")), "it did not join");
    assert!(!binary.noted().contains("ended"), "it did not wait for the end of the process");
    process.kill().unwrap();
    process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !binary.noted().contains("ended") {
        assert!(Instant::now() < deadline, "it is still there 10 s after the process was killed");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "for the test above, which kills it"]
fn joins_and_stays() {
    Server::of_this_process().unwrap();
    println!("joined");
    thread::sleep(Duration::from_hours(1));
}
