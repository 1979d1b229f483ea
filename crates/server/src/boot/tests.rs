use std::fs;
use std::os::unix::process::ExitStatusExt;

use super::*;
use crate::stub::{SHORT, Stub, TIMEOUTS};

/// Starts a postmaster that runs `script`, expecting the start to fail and to leave nothing behind. Returns
/// the error.
fn failure(script: &str, timeouts: &Timeouts) -> StartError {
    let stub = Stub::new(script);
    let error = stub.start(timeouts).expect_err(script);
    stub.expect_nothing_left(script);
    error
}

fn expect_exit(script: &str, code: Option<i32>, signal: Option<i32>, words: Option<&str>) {
    let error = failure(script, &TIMEOUTS);
    let StartError::Exited { status, log_line: ref last_words, .. } = error else {
        panic!("{script}: {error:?}")
    };
    assert_eq!((status.code(), status.signal(), last_words.as_deref()), (code, signal, words), "{script}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("could not start server: postmaster ended with {status}")), "{text}");
    let detail = words.map_or("The log is empty.".to_owned(), |words| format!("Last log line: {words}"));
    assert_eq!(error.detail(), Some(detail), "{script}");
}

#[test]
fn early_exit_is_error_with_status() {
    for code in [0, 1, 2, 127] {
        expect_exit(&format!("exit {code}"), Some(code), None, None);
    }
    for signal in [9, 11, 15] {
        expect_exit(&format!("kill -{signal} $$; serve"), None, Some(signal), None);
    }
}

#[test]
fn incomplete_pid_files_are_errors() {
    for lines in 0..8 {
        let script = format!("pid_file {lines} 'starting'; log FATAL 'line {lines}'; exit 1");
        expect_exit(&script, Some(1), None, Some(&format!("FATAL:  line {lines}")));
    }
    for state in ["starting", "stopping", "standby ", "", "read", "not ready", "ready?"] {
        expect_exit(&format!("pid_file 8 '{state}'; exit 3"), Some(3), None, None);
    }
}

#[test]
fn start_errors_have_log_and_hint() {
    for (line, hint) in [
        ("could not create shared memory segment: No space left on device", Some("pgfresh sweep")),
        ("could not write lock file \"postmaster.pid\": No space left on device", Some("--place PATH")),
        ("invalid value for parameter \"work_mem\": \"64XB\"", Some("--set")),
        ("data directory \"/x\" has invalid permissions", None),
    ] {
        let script =
            format!("log LOG starting; log FATAL '{line}'; log LOG 'database system is shut down'; exit 1");
        let error = failure(&script, &TIMEOUTS);
        assert_eq!(error.detail(), Some(format!("Last log line: FATAL:  {line}")));
        match hint {
            Some(words) => assert!(error.hint().unwrap().contains(words), "{:?}", error.hint()),
            None => assert_eq!(error.hint(), None),
        }
    }
}

#[test]
fn start_timeout_ends_postmaster() {
    for script in [
        "serve",
        "trap '' INT QUIT TERM; pid_file 8 starting; log LOG 'still starting'; serve",
        "trap '' INT QUIT TERM; pid_file 8 starting; log LOG 'still starting'; exec sleep 600",
        "backend; grandchild; pid_file 7 ''; log LOG 'still starting'; serve",
    ] {
        let timeouts = Timeouts { boot: SHORT, immediate_stop: SHORT, ..TIMEOUTS };
        let error = failure(script, &timeouts);
        let StartError::TooLate { after, log_line: ref last_words } = error else {
            panic!("{script}: {error:?}")
        };
        assert!(after >= SHORT);
        assert_eq!(
            error.to_string(),
            format!("could not start server: not ready after {:.0} s", after.as_secs_f64())
        );
        // The shell might not have written to its log yet.
        let words = last_words.as_deref();
        assert!(words.is_none() || words == Some("LOG:  still starting"), "{words:?}");
    }
}

#[test]
fn orphans_of_a_postmaster_are_ended() {
    for leave in ["backend", "grandchild", "trap '' INT QUIT TERM; backend; grandchild"] {
        expect_exit(&format!("{leave}; pid_file 5 ''; exit 1"), Some(1), None, None);
    }
    expect_exit("backend; grandchild; kill -9 $$; serve", None, Some(9), None);
}

#[test]
fn any_write_of_pid_file_is_noticed() {
    for write in [
        "pid_file 8 ready",
        "pid_file 8 'ready   '",
        "for lines in 0 1 2 3 4 5 6 7; do pid_file $lines; done; pid_file 8 starting; pid_file 8 ready",
        // Write the first half, close the file, and then write all of it.
        "cd \"$data\"; pid_file 8 ready all; head -c 40 all >postmaster.pid; cat all >postmaster.pid",
        // Write it under a different name first.
        "cd \"$data\"; pid_file 8 ready other; mv other postmaster.pid",
    ] {
        let stub = Stub::new(&format!("trap 'finish 0' INT; trap 'finish 1' QUIT; {write}; serve"));
        let server = stub.start_up(&TIMEOUTS, &[]).expect(write);
        assert!(server.is_alive() && server.run().data().is_dir());
        assert_eq!(
            server.pid().to_string(),
            fs::read_to_string(server.run().data().join(PID_FILE)).unwrap().lines().next().unwrap()
        );
        drop(server);
        stub.expect_nothing_left(write);
    }
}

/// While the pid file is being written, only the complete word means that the server is ready.
#[test]
fn partial_pid_files_are_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let data = Directory::open(folder.path()).unwrap();
    let whole = "4711\n/data\n1767225600\n5432\n/socket\n\n  5432001         7\nready   \n";
    let word = whole.find("ready").unwrap() + "ready".len();
    for end in 0..=whole.len() {
        fs::write(folder.path().join(PID_FILE), &whole[..end]).unwrap();
        assert_eq!(is_marked_ready(&data), end >= word, "{:?}", &whole[..end]);
    }
    for state in ["starting", "stopping", "standby ", "already", " ready", "ready!"] {
        fs::write(folder.path().join(PID_FILE), whole.replace("ready   ", state)).unwrap();
        assert!(!is_marked_ready(&data), "{state}");
    }
    // The word doesn't count in the seventh or ninth line.
    for moved in [whole.replacen("\n\n", "\n", 1), format!("\n{whole}")] {
        fs::write(folder.path().join(PID_FILE), &moved).unwrap();
        assert!(!is_marked_ready(&data), "{moved:?}");
    }
    fs::remove_file(folder.path().join(PID_FILE)).unwrap();
    assert!(!is_marked_ready(&data));
}

#[test]
fn silent_ready_server_causes_start_error() {
    for script in [
        "pid_file 8 ready; serve",
        "pid_file 8 ready; exit 1",
        "pid_file 8 ready; backend; kill -9 $$",
        "trap '' QUIT; pid_file 8 ready; exec sleep 600",
    ] {
        // The socket doesn't exist.
        let error = failure(script, &Timeouts { immediate_stop: SHORT, ..TIMEOUTS });
        match error {
            StartError::Session(_) => {
                assert_eq!(error.to_string(), "could not use the new server");
                assert_eq!(error.detail().unwrap(), "The server has ended, or has closed the connection.");
            }
            // pgfresh might notice that the process has exited before it reads the word "ready".
            StartError::Exited { .. } if script.contains("exit") || script.contains("kill") => {}
            other => panic!("{script}: {other:?}"),
        }
    }
}

#[test]
fn ineffective_settings_are_errors() {
    let script = "trap 'finish 0' INT; trap 'finish 1' QUIT; pid_file 8 ready; serve";
    let mut stub = Stub::new(script);
    stub.set("work_mem", "8MB");
    stub.set("fsync", "off");
    drop(stub.start_up(&TIMEOUTS, &[("work_mem", "8MB"), ("fsync", "off")]).unwrap());
    stub.expect_nothing_left("both in effect");
    let error = stub.start_up(&TIMEOUTS, &[("work_mem", "4MB"), ("fsync", "off")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "setting \"work_mem\" has not taken effect: asked for \"8MB\", but the server has \"4MB\""
    );
    stub.expect_nothing_left("one not in effect");
}

#[test]
fn unrunnable_postmaster_leaves_no_files() {
    let stub = Stub::new("serve");
    fs::remove_file(stub.installation().bin().join("postgres")).unwrap();
    let error = stub.start(&TIMEOUTS).unwrap_err();
    assert!(
        matches!(error, StartError::File(_)) && error.to_string().starts_with("could not run \""),
        "{error}"
    );
    crate::stub::wait_until("nothing is left", || crate::stub::left_in(stub.place.root()).is_empty());
}
