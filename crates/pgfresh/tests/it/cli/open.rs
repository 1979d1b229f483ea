//! Tests that `pgfresh open` shows the live page in the user's browser, and hides the secret from other users.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{Outcome, Scene, User, finish, is_root};

/// User ID of another user.
const OTHER_UID: u32 = 65_534;

/// Makes a project with a background server, and returns the server's URL too.
fn project() -> (Scene, String) {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "");
    let outcome = scene.run(["url"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    (scene, outcome.stdout.trim().to_owned())
}

/// Runs `pgfresh open` with `browser`, and without a desktop's environment variables.
fn open(scene: &Scene, browser: impl AsRef<OsStr>) -> Outcome {
    let mut command = scene.pgfresh(["open"]);
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"] {
        command.env_remove(name);
    }
    finish({
        command.env("BROWSER", browser);
        command
    })
}

/// Returns the secret and the address in a pgfresh URL.
fn parts(url: &str) -> (&str, &str) {
    let (secret, rest) = url.strip_prefix("postgresql://postgres:").unwrap().split_once('@').unwrap();
    (secret, rest.split_once('/').unwrap().0)
}

/// Returns the status and the headers that curl receives as `user`.
fn get(address: &str, user: u32) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "-D", "-", "-o", "/dev/null", address]).stdin(Stdio::null());
    if user != 0 {
        command.uid(user).gid(user);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn the_browser_gets_no_secret() {
    let (scene, url) = project();
    let (secret, address) = parts(&url);
    // The browser's path contains characters that a shell would interpret.
    let name = "my browser; $(touch hit) 'x' \"y\" %s";
    let browser =
        scene.write_program(name, "printf '%s\\n' \"$@\" >>asked; env >environment; cat >/dev/null");
    let outcome = open(&scene, &browser);
    assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("opened http://{address}/\n")));
    let asked = std::fs::read_to_string(scene.directory.join("asked")).unwrap();
    let page = asked.trim_end();
    assert!(page.starts_with(&format!("http://{address}/?invitation=")) && !page.contains(secret), "{page}");
    let environment = std::fs::read_to_string(scene.directory.join("environment")).unwrap();
    assert!(!environment.contains(secret) && !scene.directory.join("hit").exists(), "{environment}");

    let head = get(page, 0);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("set-cookie: pgfresh_"), "{head}");
    let api = page.replace("/?", "/v1/status?");
    assert!(get(&api, 0).starts_with("HTTP/1.1 401"), "it is for the page alone");
    assert!(get(&page.replace("invitation=1", "invitation=2"), 0).starts_with("HTTP/1.1 401"));
    if is_root() {
        let head = get(page, OTHER_UID);
        assert!(head.starts_with("HTTP/1.1 401") && !head.contains("set-cookie"), "{head}");
    }
    scene.run(["stop"]);
}

#[test]
fn without_a_browser_the_address_is_printed() {
    let (scene, url) = project();
    let (secret, address) = parts(&url);
    let printed = format!("http://{address}/?token={secret}\n");
    let failing = scene.write_program("failing", "exit 3");
    let failing = failing.to_str().unwrap();
    for browser in ["", " ", ":", "/nonexistent:not-a-program-of-anybody", failing, "%s", "\n", "/"] {
        let outcome = open(&scene, browser);
        assert_eq!((outcome.code, outcome.stdout, outcome.stderr), (Some(0), printed.clone(), String::new()));
    }
    let outcome = open(&scene, OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!((outcome.code, outcome.stdout), (Some(0), printed.clone()));
    // pgfresh starts the first browser that works, with its arguments, and replaces `%s` with the address.
    let browser = scene.write_program("browser", "printf '%s|' \"$@\" >asked");
    let outcome = open(&scene, format!("{failing}:{} --new %s --kiosk:{failing}", browser.display()));
    assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("opened http://{address}/\n")));
    let asked = std::fs::read_to_string(scene.directory.join("asked")).unwrap();
    assert!(asked.starts_with("--new|http://") && asked.ends_with("|--kiosk|"), "{asked}");
    assert!(get(printed.trim_end(), 0).starts_with("HTTP/1.1 200"));
    scene.run(["stop"]);
}

#[test]
fn open_prefers_this_runs_page() {
    let (scene, url) = project();
    let within = scene.run([
        "run",
        "--",
        "sh",
        "-euc",
        "BROWSER=/bin/echo \"$0\" open; echo $PGPORT",
        env!("CARGO_BIN_EXE_pgfresh"),
    ]);
    let lines: Vec<_> = within.stdout.lines().collect();
    assert_eq!(lines[1], format!("opened http://127.0.0.1:{}/", lines[2]), "{within}");
    assert_ne!(parts(&url).1, format!("127.0.0.1:{}", lines[2]));
    scene.run(["stop"]);
    let outcome = open(&scene, "/bin/echo");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("pgfresh: no server of this project is running\nHINT:  "),
        "{}",
        outcome.stderr
    );
}
