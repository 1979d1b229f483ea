//! Standard output and standard error that cannot be written: a full disk, or a reader that has gone.

use std::fs::File;
use std::process::Stdio;

use crate::common::{Scene, User, collect, ground};

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_to_be_told() {
    let scene = Scene::new(User::Ourselves);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = scene.pgfresh(["completions", "bash"]);
    command.stdout(writer).stderr(Stdio::piped());
    let outcome = collect(command.spawn().unwrap());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(141), ""), "{outcome}");
}

/// Standard output is on a full disk. `url` releases the database whose URL it cannot print.
#[test]
fn what_cannot_be_printed_is_an_error() {
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

/// What is said beside is lost; what is asked for is done, and its exit code is the same.
#[test]
fn what_cannot_be_said_changes_nothing() {
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
