//! Tests what happens to reports when one of several outputs fails.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use serde_json::Value;

use super::scene;
use crate::common::{Scene, collect};

const FINDING: [&str; 4] = ["--", "sh", "-c", "psql -XAtqc 'INSERT INTO audit DEFAULT VALUES' || true"];
const ONE_FAULT: [&str; 5] =
    ["faults", "--only", "app:INSERT INTO audit DEFAULT VALUES:40001", "--report", "ok.json"];

/// Runs the trials with `stdout` as standard output, and returns the exit code and standard error.
fn run(scene: &Scene, stdout: Stdio) -> (Option<i32>, String) {
    let mut pgfresh = scene.pgfresh([&ONE_FAULT[..], &FINDING].concat());
    let output = pgfresh.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn expect_report(scene: &Scene, context: &str) {
    let path = scene.directory.join("ok.json");
    let report: Value = serde_json::from_slice(&fs::read(&path).unwrap_or_default()).expect(context);
    assert_eq!(report["findings"][0]["kind"], "hidden_error", "{context}");
    fs::remove_file(path).unwrap();
}

#[test]
fn failing_report_file_leaves_other_reports() {
    let scene = scene();
    symlink("/dev/full", scene.directory.join("full.xml")).unwrap();
    let mut pgfresh =
        scene.pgfresh([&ONE_FAULT[..3], &["--report", "full.xml"], &ONE_FAULT[3..], &FINDING].concat());
    let outcome = collect(pgfresh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(outcome.code, Some(125), "{outcome}");
    assert!(outcome.stderr.contains("could not write \"full.xml\": No space left on device"), "{outcome}");
    assert!(outcome.stderr.contains("HINT:  Make room"), "{outcome}");
    assert!(outcome.stdout.contains("hides the error"), "{outcome}");
    expect_report(&scene, &outcome.to_string());
}

#[test]
fn failing_standard_output_leaves_reports() {
    let scene = scene();
    let (code, stderr) = run(&scene, File::options().write(true).open("/dev/full").unwrap().into());
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("could not write to standard output: No space left on device"), "{stderr}");
    expect_report(&scene, &stderr);
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let (code, stderr) = run(&scene, writer.into());
    assert_eq!(code, Some(141), "{stderr}");
    expect_report(&scene, &stderr);
}
