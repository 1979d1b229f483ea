//! Tests output that fails (because the disk is full, or the reader has ended), and failures in JSON.

use std::fs::File;
use std::process::Stdio;

use crate::common::{Scene, User, collect, ground};
use serde_json::Value;

#[test]
fn a_closed_pipe_prints_no_error() {
    let scene = Scene::new(User::Ourselves);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = scene.pgfresh(["completions", "bash"]);
    command.stdout(writer).stderr(Stdio::piped());
    let outcome = collect(command.spawn().unwrap());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(141), ""), "{outcome}");
}

/// Standard output is on a full disk. `url` releases the database whose URL it can't print.
#[test]
fn failed_output_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    scene.write("input", "");
    for words in [
        &["template", "list", "--json"][..],
        &["template", "show", "--setup", "true", "--inputs", "input"],
        &["postgres", "path"],
        &["completions", "bash"],
        &["url", "x"],
        &["serve"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = scene.pgfresh(words);
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        let outcome = collect(command.spawn().unwrap());
        let expected = "pgfresh: could not write to standard output: No space left on device\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), expected), "{words:?}: {outcome}");
    }
    let status = scene.run(["status", "--json"]);
    assert!(status.stdout.contains(r#""leases":[]"#), "{status}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

/// pgfresh loses its notices, but does the requested work and has the same exit code.
#[test]
fn failed_notices_change_nothing() {
    let crash =
        "kill -9 $(\"$0\" -XAtqc \"SELECT pg_read_file('postmaster.pid')\" | head -n 1); echo end; exit 5";
    let role = "\"$0\" -XAtqc 'CREATE ROLE left_behind' dbname=some && echo made";
    for (words, script, expected) in [
        (&["-v", "run", "--"][..], "echo ran; exit 4", (4, "ran\n")),
        (&["-vv", "run", "--"], "\"$0\" -XAtqc 'SELECT 6'", (0, "6\n")),
        (&["run", "--setup", "true", "--inputs", "input", "--"], "echo ran", (0, "ran\n")),
        (&["run", "--profile", "--"], "echo ran", (0, "ran\n")),
        (&["run", "--compare", "-n", "1", "--"], "true", (0, "")),
        (&["run", "--"], role, (0, "made\n")),
        (&["run", "--"], crash, (5, "end\n")),
        (&["run", "--keep", "--"], "exit 3", (3, "")),
    ] {
        for is_full in [true, false] {
            let scene = Scene::new(User::Ourselves);
            scene.write("input", &format!("{is_full}"));
            let mut command = scene.pgfresh([words, &["sh", "-c", script, ground::psql()]].concat());
            command.stdout(Stdio::piped());
            if is_full {
                command.stderr(File::options().write(true).open("/dev/full").unwrap());
            } else {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                command.stderr(writer);
            }
            let outcome = collect(command.spawn().unwrap());
            let (code, said) = expected;
            assert_eq!(outcome.code, Some(code), "{words:?}: {outcome}");
            if !words.contains(&"--compare") {
                assert_eq!(outcome.stdout, said, "{words:?}: {outcome}");
            }
            assert_eq!(scene.run(["sweep", "--kept"]).code, Some(0));
        }
    }
}

/// A client gets the complete error in JSON, and people read it on standard error.
#[test]
fn json_output_has_the_start_error() {
    for (words, variable, message) in [
        (&["--set", "shared_buffers=none"][..], None, "could not start server: "),
        (&["--setup", "echo why; exit 3"], None, "template \"app\""),
        (&["--space", "much"], None, "invalid value 'much' for '--space <SIZE>'"),
        (&[], Some(("PGFRESH_PLACE", "nowhere")), "invalid value 'nowhere' for PGFRESH_PLACE"),
        (&["--postgres", "/nonexistent"], None, "could not examine \"/nonexistent/postgres\""),
    ] {
        let scene = Scene::new(User::Ourselves);
        for command in [&["serve", "--shared", "--json"][..], &["serve", "--json"]] {
            let mut pgfresh = scene.pgfresh([command, words].concat());
            pgfresh.envs(variable).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = pgfresh.spawn().unwrap();
            let lifeline = child.stdin.take();
            let outcome = collect(child);
            drop(lifeline);
            assert!(outcome.code.is_some_and(|code| code != 0), "{outcome}");
            let answer: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"));
            let error = &answer["error"];
            let parts = [("DETAIL", "detail"), ("HINT", "hint")];
            let more = parts.map(|(label, key)| {
                error[key].as_str().map(|text| format!("{label}:  {text}\n")).unwrap_or_default()
            });
            let said = format!("pgfresh: {}\n{}", error["message"].as_str().unwrap(), more.concat());
            assert!(outcome.stderr.ends_with(&said), "{answer}: {outcome}");
            assert!(said.contains(message), "{said}");
        }
    }
}
