use std::env;
use std::fs;
use std::time::Instant;

use sys::{Lock, Signal};

use super::*;
use crate::stub::{GUARDED, Stub, left_in, wait_until};

/// Acts as `main` in a guard process. Other tests start a guard by running this program with only this test.
#[test]
#[ignore = "it is the guard of other tests"]
fn this_process_is_a_guard() {
    run_guard(&PathBuf::from(env::var_os(GUARDED).expect("other tests start it")));
}

/// Runs the stub's postmaster, which holds the server's lock. Waits until the stub has started `processes`
/// processes.
fn spawn(stub: &Stub, guard: &Guard, processes: usize) -> Child {
    let guarded = guard.guarded_command().unwrap();
    let mut command = guarded.command(stub.installation(), "postgres", &stub.account).unwrap();
    let child = command.arg("-D").arg(guard.run().data()).spawn().unwrap();
    wait_until("a start", || stub.count() == processes);
    child
}

#[test]
fn guarded_programs_end_with_the_guard() {
    for script in ["serve", "trap '' INT QUIT TERM\nserve", "trap '' QUIT\nexec sleep 600"] {
        let stub = Stub::new(&format!("grandchild\n{script}"));
        let guard = stub.guard();
        let mut child = spawn(&stub, &guard, 2);
        assert_eq!(stub.processes().len(), 2, "{script}: they live as long as the guard");
        drop(guard);
        stub.expect_nothing_left(script);
        assert!(!child.wait().unwrap().success(), "{script}");
    }
}

#[test]
fn owners_without_a_guard_clean_up() {
    let stub = Stub::new("trap '' QUIT\nserve");
    let mut guard = stub.guard();
    let mut child = spawn(&stub, &guard, 1);
    let killed = guard.process.child.as_mut().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(guard);
    // The guard is dead. So the owner itself removed everything, and did so before the drop returned.
    assert_eq!(left_in(stub.place.root()), Vec::<PathBuf>::new());
    stub.expect_ended("a killed guard");
    child.wait().unwrap();
}

/// A cache may be inside a checkout that test runners search. A test runner fails if files disappear during
/// its search.
#[test]
fn complete_removal_waits_for_guard() {
    let stub = Stub::new("trap '' QUIT\nserve");
    let guard = stub.guard();
    let mut child = spawn(&stub, &guard, 1);
    guard.remove();
    assert_eq!(left_in(stub.place.root()), Vec::<PathBuf>::new());
    child.wait().unwrap();
}

#[test]
fn slow_guards_leave_no_zombie() {
    let stub = Stub::new("serve");
    let mut guard = stub.guard();
    let timeout = Duration::from_secs(1);
    guard.process.timeout = timeout;
    let number = guard.process.child.as_ref().unwrap().id();
    let process = sys::ProcessHandle::of_number(number).unwrap();
    process.signal(Signal::STOP).unwrap();
    let begun = Instant::now();
    drop(guard);
    let took = begun.elapsed();
    process.signal(Signal::CONT).unwrap();
    assert!(took >= timeout && took < timeout * 2, "{took:?}");
    wait_until("it is reaped", || sys::ProcessHandle::of_number(number).is_none());
    assert_eq!(left_in(stub.place.root()), Vec::<PathBuf>::new());
}

#[test]
fn guard_waits_for_owner_lock() {
    let stub = Stub::new("serve");
    let mut guard = stub.guard();
    let mut child = spawn(&stub, &guard, 1);
    drop(guard.process.lifeline.take());
    // The guard keeps `done` open until it has removed everything. Since it is still open, the guard is still
    // waiting for the lock.
    assert!(!sys::wait_readable(&guard.process.done, REMOVAL_TIMEOUT).unwrap());
    assert!(guard.run().data().is_dir());
    assert_eq!(stub.processes().len(), 1);
    drop(guard);
    stub.expect_nothing_left("the owner let go");
    child.wait().unwrap();
}

#[test]
fn sweep_removes_only_unowned_directories() {
    let stub = Stub::new("grandchild\nserve");
    let root = stub.place.root().join(format!("pgfresh-{}", sys::user()));
    let (owned, mut dead) = (stub.unguarded(), stub.unguarded());
    let mut command = stub.installation().command("postgres", &stub.account);
    command.arg("-D").arg(dead.data());
    let lock = dead.server_lock().unwrap();
    sys::inherit(&mut command, vec![lock.descriptor().unwrap()]);
    let mut child = command.spawn().unwrap();
    drop((command, lock));
    wait_until("a start", || stub.count() == 2);
    let path = dead.path().to_owned();
    dead.release();
    assert_eq!(swept(&root), [path]);
    stub.expect_ended("a sweep");
    child.wait().unwrap();
    assert_eq!(left_in(&root), [owned.path()]);
    assert!(owned.data().is_dir() && Lock::is_held(&owned.path().join("owner.lock")).unwrap());
    drop(owned);
    assert_eq!(swept(&root).len(), 1);
    assert!(left_in(stub.place.root()).is_empty());
}

/// Sweeps until something is removed. The first sweep may find an owner, because another test may be forking
/// a child, which shares all of this process's locks until it executes its program.
fn swept(root: &Path) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    wait_until("a sweep that removes something", || {
        let (now, failures) = sweep(&[root.to_owned()]);
        assert!(failures.is_empty(), "{failures:?}");
        removed.extend(now);
        !removed.is_empty()
    });
    removed
}

#[test]
fn pid_file_lists_recorded_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(PID_FILE);
    let read = || recorded_server(folder.path()).map(|server| (server.pid, server.is_postmaster));
    for (text, server) in [
        ("4711\n/data\n", Some((4711, true))),
        ("-4711\n/data\n", Some((4711, false))),
        ("4711", Some((4711, true))),
        ("  4711  \n", Some((4711, true))),
        ("", None),
        ("\n4711\n", None),
        ("0\n", None),
        ("-2147483648\n", None),
        ("47x\n", None),
        ("99999999999\n", None),
    ] {
        fs::write(&file, text).unwrap();
        let server = server.map(|(pid, is_postmaster)| (Pid::from_raw(pid).unwrap(), is_postmaster));
        assert_eq!(read(), server, "{text:?}");
    }
    fs::write(&file, b"\xff\n").unwrap();
    assert_eq!(read(), None);
    fs::remove_file(&file).unwrap();
    assert_eq!(read(), None);
}
