use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc;

use super::*;
use crate::StartError;
use crate::boot::Timeouts;
use crate::guard::PID_FILE;
use crate::stub::{SHORT, Stub, TIMEOUTS};

/// Starts a server with a backend and a grandchild. The postmaster handles signals according to `traps`.
fn up(traps: &str, timeouts: &Timeouts) -> (Stub, Server) {
    let stub = Stub::new(&format!("{traps}\nbackend; grandchild; pid_file 8 ready; serve"));
    let server: Result<Server, StartError> = stub.start_up(timeouts, &[]);
    (stub, server.expect(traps))
}

const ORDERLY: &str = "trap 'finish 0' INT; trap 'finish 1' QUIT";

#[test]
fn immediate_stops_always_leave_nothing() {
    let short = Timeouts { immediate_stop: SHORT, ..TIMEOUTS };
    for (traps, timeouts) in [
        (ORDERLY, &TIMEOUTS),
        ("trap 'finish 77' QUIT", &TIMEOUTS),
        ("trap 'kill -9 $$' QUIT", &TIMEOUTS),
        ("trap 'kill -11 $$' QUIT", &TIMEOUTS),
        ("trap '' INT QUIT TERM", &short),
        ("trap 'backend' QUIT", &short),
    ] {
        let (stub, server) = up(traps, timeouts);
        server.stop().expect(traps);
        stub.expect_nothing_left(traps);
    }
}

#[test]
fn dropped_server_leaves_no_files() {
    for traps in [ORDERLY, "trap '' INT QUIT TERM"] {
        let (stub, server) = up(traps, &Timeouts { immediate_stop: SHORT, ..TIMEOUTS });
        drop(server);
        stub.expect_nothing_left(traps);
    }
}

#[test]
fn clean_shutdown_returns_guarded_data() {
    let (stub, server) = up(ORDERLY, &TIMEOUTS);
    fs::write(server.run().data().join("table"), "rows").unwrap();
    let guard = server.shut_down().unwrap();
    // A backend and a grandchild outlive the postmaster here.
    stub.expect_ended("shut down");
    let data = guard.run().data();
    assert_eq!(fs::read_to_string(data.join("table")).unwrap(), "rows");
    assert!(!data.join(PID_FILE).exists());
    assert!(!sys::Lock::is_held(&guard.run().server_lock_path()).unwrap());
    drop(guard);
    stub.expect_nothing_left("shut down");
}

#[test]
fn unclean_shutdowns_are_errors() {
    for (traps, code, signal) in [
        ("trap 'log FATAL why; finish 1' INT", Some(1), None),
        ("trap 'log FATAL why; finish 2' INT", Some(2), None),
        ("trap 'log FATAL why; kill -9 $$' INT", None, Some(9)),
        ("trap 'log FATAL why; kill -11 $$' INT", None, Some(11)),
    ] {
        let (stub, server) = up(traps, &TIMEOUTS);
        let error = server.shut_down().unwrap_err();
        let StopError::Unclean { status, log_line: ref last_words } = error else {
            panic!("{traps}: {error:?}")
        };
        assert_eq!(
            (status.code(), status.signal(), last_words.as_deref()),
            (code, signal, Some("FATAL:  why"))
        );
        assert_eq!(
            error.to_string(),
            format!("could not stop server cleanly: postmaster ended with {status}")
        );
        assert_eq!(error.detail().unwrap(), "Last log line: FATAL:  why");
        stub.expect_nothing_left(traps);
    }
}

#[test]
fn hanging_postmasters_are_ended() {
    // The first postmaster ignores one signal but exits on the next. The second exits on no signal.
    for traps in ["trap '' INT; trap 'finish 0' QUIT", "trap '' INT QUIT TERM"] {
        let (stub, server) = up(traps, &Timeouts { clean_stop: SHORT, ..TIMEOUTS });
        let error = server.shut_down().unwrap_err();
        assert!(matches!(error, StopError::TooLate { after } if after == SHORT), "{traps}: {error:?}");
        assert_eq!(error.to_string(), "could not stop server: it was still running after 0 s");
        assert_eq!(error.detail(), None);
        stub.expect_nothing_left(traps);
    }
}

#[test]
fn killed_servers_are_no_clean_shutdown() {
    for moment in ["before", "during"] {
        let (stub, server) = up("trap 'log LOG asked' INT", &TIMEOUTS);
        let postmaster = sys::ProcessHandle::of_number(server.pid()).unwrap();
        let killer = if moment == "before" {
            postmaster.kill();
            None
        } else {
            let log = server.run().log();
            Some(std::thread::spawn(move || {
                crate::stub::wait_until("the signal", || {
                    fs::read_to_string(&log).is_ok_and(|text| !text.is_empty())
                });
                postmaster.kill();
            }))
        };
        let error = server.shut_down().unwrap_err();
        if let Some(killer) = killer {
            killer.join().unwrap();
        }
        let StopError::Unclean { status, .. } = error else { panic!("{moment}: {error:?}") };
        assert_eq!(status.signal(), Some(9), "{moment}");
        stub.expect_nothing_left(moment);
    }
}

#[test]
fn crash_leaves_data_unchanged() {
    for traps in ["trap 'kill -9 $$' QUIT", "trap '' INT QUIT"] {
        let (stub, server) = up(traps, &Timeouts { immediate_stop: SHORT, ..TIMEOUTS });
        let guard = server.crash().unwrap();
        stub.expect_ended(traps);
        assert!(guard.run().data().join(PID_FILE).exists(), "the next start has to recover");
        drop(guard);
        stub.expect_nothing_left(traps);
    }
}

/// Before another server starts on the same data, the thread that terminates leftover processes must have
/// finished.
#[test]
fn servers_restarted_after_crashes_stay() {
    let stub = Stub::new("trap 'kill -9 $$' QUIT\nbackend; grandchild; pid_file 8 ready; serve");
    let mut server = stub.start_up(&TIMEOUTS, &[]).unwrap();
    for _ in 0..10 {
        let guard = server.crash().unwrap();
        server = stub.start_again_in(guard, &TIMEOUTS).expect("no process ends it");
        std::thread::sleep(SHORT);
        assert!(server.is_alive());
    }
    drop(server);
    stub.expect_nothing_left("crashes");
}

#[test]
fn halted_servers_keep_their_data() {
    for traps in [
        ORDERLY,
        "trap 'finish 1' INT",
        "trap 'kill -9 $$' INT",
        "trap '' INT QUIT TERM",
        "sleep 0.3 && kill -9 $$ &",
    ] {
        let (stub, server) = up(traps, &Timeouts { halt: SHORT, ..TIMEOUTS });
        fs::write(server.run().data().join("table"), "rows").unwrap();
        let guard = server.halt().unwrap();
        stub.expect_ended(traps);
        assert_eq!(fs::read_to_string(guard.run().data().join("table")).unwrap(), "rows");
        drop(guard);
        stub.expect_nothing_left(traps);
    }
}

/// A stopped postmaster (SIGSTOP) neither handles other signals nor exits.
#[test]
fn stopped_postmasters_continue_and_end() {
    let (stub, server) = up(ORDERLY, &TIMEOUTS);
    sys::ProcessHandle::of_number(server.pid()).unwrap().signal(Signal::STOP).unwrap();
    let guard = server.halt().unwrap();
    assert!(!guard.run().data().join(PID_FILE).exists(), "an orderly end");
    drop(guard);
    stub.expect_nothing_left("stopped");
}

/// The pid file of a killed server still contains "ready".
#[test]
fn failed_restarts_keep_their_data() {
    let stub = Stub::new(
        "[ -e \"$data/broken\" ] && { echo 'postgres: not so'; exit 1; }
         log PANIC 'of the first'; trap 'kill -9 $$' QUIT; pid_file 8 ready; serve",
    );
    let mut guard = stub.start_up(&TIMEOUTS, &[]).unwrap().crash().unwrap();
    let broken = guard.run().data().join("broken");
    for _ in 0..2 {
        assert!(
            fs::read_to_string(guard.run().data().join(PID_FILE)).is_ok_and(|text| text.contains("ready"))
                || broken.exists()
        );
        fs::write(&broken, "").unwrap();
        let failed = stub.start_again_in(guard, &TIMEOUTS).unwrap_err();
        assert_eq!(failed.error.detail().unwrap(), "Last log line: postgres: not so");
        guard = failed.guard.unwrap();
    }
    fs::remove_file(&broken).unwrap();
    let server = stub.start_again_in(guard, &TIMEOUTS).unwrap();
    assert!(server.is_alive());
    drop(server);
    stub.expect_nothing_left("two attempts");
}

#[test]
fn kept_servers_end_and_stay_on_disk() {
    for traps in [ORDERLY, "trap '' INT QUIT TERM"] {
        let (stub, server) = up(traps, &Timeouts { clean_stop: SHORT, ..TIMEOUTS });
        fs::write(server.run().data().join("table"), "rows").unwrap();
        let kept = server.keep().unwrap();
        stub.expect_ended(traps);
        assert!(kept.file_name().unwrap().to_str().unwrap().starts_with("kept-"), "{}", kept.display());
        assert_eq!(fs::read_to_string(kept.join("data/table")).unwrap(), "rows");
        assert!(!sys::Lock::is_held(&kept.join("server.lock")).unwrap());
        assert_eq!(storage::remove_kept(kept.parent().unwrap()).unwrap(), [kept]);
        stub.expect_nothing_left(traps);
    }
}

#[test]
fn server_end_is_reported_once() {
    let (stub, server) = up(ORDERLY, &TIMEOUTS);
    let (sender, ends) = mpsc::channel();
    server.on_end(move || sender.send(()).unwrap()).unwrap();
    assert!(ends.try_recv().is_err() && server.is_alive());
    sys::ProcessHandle::of_number(server.pid()).unwrap().kill();
    // A backend and a grandchild outlive the postmaster, but a thread soon terminates them.
    ends.recv().unwrap();
    assert!(ends.recv().is_err());
    assert!(!server.is_alive());
    stub.expect_ended("the end is reported");
    drop(server);
    stub.expect_nothing_left("the end is reported");
}
