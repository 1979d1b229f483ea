//! Tests that passwords aren't in the arguments of a process, which every user on the machine can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Scene, User, finish, ground};

/// Script that writes down its arguments, both as it receives them and as the kernel has them, and its password.
const SPY: &str = r#"{ echo "$*"; tr '\0' ' ' </proc/$$/cmdline; echo; } >>"$HOME/arguments"
echo "$(basename "$0") $PGPASSWORD" >>"$HOME/passwords"
echo 'SELECT 1;'"#;

/// Returns a directory with a server, and with client programs that only write down their arguments and passwords.
fn spies(scene: &Scene) -> String {
    let real = std::path::Path::new(ground::psql()).parent().unwrap();
    for program in ["pg_dump", "pg_dumpall", "pg_restore", "psql"] {
        scene.write_program(&format!("spies/{program}"), SPY);
    }
    scene.write_program("spies/postgres", &format!("exec '{}/postgres' \"$@\"", real.display()));
    let folder = scene.directory.join("spies");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(real.join("initdb"), folder.join("initdb")).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn url_passwords_are_in_no_arguments() {
    let scene = Scene::new(User::Ourselves);
    let bin = spies(&scene);
    let url = "postgresql://me:s3cr%2Ft@db.example:5433/shop?application_name=x";
    let pairs = r"host=db.example user=me password='s3cr/t'";
    for (target, open) in [
        (url, "--dbname=postgresql://me@db.example:5433/shop?application_name=x"),
        (pairs, "--dbname=host='db.example' user='me'"),
    ] {
        let outcome = scene.run(["template", "import", target, "schema.sql", "--postgres", &bin]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let _ = scene.run(["doctor", "--quick", "--url", target, "--postgres", &bin]);
        let arguments = fs::read_to_string(scene.directory.join("arguments")).unwrap();
        assert!(arguments.matches(open).count() >= 6, "{arguments}");
        assert!(!arguments.contains("s3cr"), "{arguments}");
        let passwords = fs::read_to_string(scene.directory.join("passwords")).unwrap();
        for program in ["pg_dumpall", "pg_dump", "psql"] {
            assert!(passwords.lines().any(|line| line == format!("{program} s3cr/t")), "{passwords}");
        }
        fs::remove_file(scene.directory.join("arguments")).unwrap();
        fs::remove_file(scene.directory.join("passwords")).unwrap();
    }
}

#[test]
fn connection_strings_with_other_secrets_are_refused() {
    let scene = Scene::new(User::Ourselves);
    let bin = spies(&scene);
    for target in ["postgresql://me:s3/cret@db/shop", "host=db sslpassword=s3/cret"] {
        for arguments in [vec!["template", "import", target, "schema.sql"], vec!["doctor", "--url", target]] {
            let outcome = scene.run([&arguments[..], &["--postgres", &bin]].concat());
            assert_eq!(outcome.code, Some(1), "{outcome}");
            assert!(outcome.stderr.starts_with("pgfresh: cannot "), "{outcome}");
            assert!(outcome.stderr.contains("HINT: ") && !outcome.stderr.contains("cret@"), "{outcome}");
        }
    }
    assert!(!scene.directory.join("arguments").exists());
    assert!(!scene.directory.join("schema.sql").exists());
}

/// The gateway plays a server that requests a password.
#[test]
fn imports_find_passwords_like_libpq() {
    let scene = Scene::new(User::Ourselves);
    scene.write("app.sql", "CREATE TABLE imported (id int);");
    scene.write("service.conf", "");
    let script = r#"
        import() { rm -f out.sql; "$PGFRESH" -q template import "$@" out.sql >/dev/null && grep -c 'TABLE public.imported' out.sql; }
        url="postgresql://postgres@$PGHOST:$PGPORT/$PGDATABASE"
        import "$url"
        echo "$PGHOST:$PGPORT:*:postgres:$PGPASSWORD" >pgpass; chmod 600 pgpass
        printf '[shop]\nhost=%s\nport=%s\nuser=postgres\npassword=%s\ndbname=%s\n' \
            "$PGHOST" "$PGPORT" "$PGPASSWORD" "$PGDATABASE" >service.conf
        unset PGPASSWORD
        PGPASSFILE=$PWD/pgpass import "$url"
        PGSERVICEFILE=$PWD/service.conf import service=shop
        ! import "$url" 2>/dev/null"#;
    let mut command = scene.pgfresh(["run", "--sql", "app.sql", "--", "sh", "-euc", script]);
    command.env("PGFRESH", ground::program());
    let outcome = finish(command);
    // The import creates the table, and sets its owner.
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "2\n2\n2\n"), "{outcome}");
}

/// The background server runs for minutes longer than the psql that it was started for.
#[test]
fn psql_arguments_stay_out_of_the_server() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["psql", "x", "--", "-XAtqc", "SELECT 's3cret'"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "s3cret\n"), "{outcome}");
    let cache = scene.cache.display().to_string();
    let mut servers = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(words) = fs::read_to_string(process.path().join("cmdline")) else { continue };
        if words.contains("--background") && words.contains(&cache) {
            servers.push(words);
        }
    }
    assert!(!servers.is_empty() && servers.iter().all(|words| !words.contains("s3cret")), "{servers:?}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}
