//! Tests signed templates: pgfresh uses another machine's template only if a trusted key has signed it, and
//! doesn't reveal secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// Makes a key pair at the scene's `file`, and returns the public key.
fn keygen(scene: &Scene, file: &str) -> String {
    let outcome = scene.run(["template", "keygen", file]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let (_, line) = outcome.stdout.split_once("[cache]\nkeys = [\"").expect(&outcome.stdout);
    line.trim_end().strip_suffix("\"]").unwrap().to_owned()
}

/// Runs pgfresh with an empty cache, and with `keys` as the trusted keys.
fn elsewhere(scene: &Scene, keys: &[&str], words: &[&str]) -> Outcome {
    // The cache is in memory, because pgfresh waits for writes to a cache on a disk.
    let cache = scene.place.join("elsewhere");
    drop(fs::remove_dir_all(&cache));
    if words.contains(&"push") {
        ground::copy_base_cache(scene.user, &cache);
    }
    let mut command = scene.pgfresh(words);
    command.env("PGFRESH_CACHE", &cache).env("PGFRESH_CACHE_KEYS", keys.join(";"));
    finish(command)
}

/// Removes the cache that [`elsewhere`] used.
fn leave(scene: &Scene) {
    fs::remove_dir_all(scene.place.join("elsewhere")).unwrap();
}

/// Returns the only entry in "carried".
fn entry(scene: &Scene) -> PathBuf {
    let mut entries = fs::read_dir(scene.directory.join("carried")).unwrap();
    entries.next().unwrap().unwrap().path()
}

/// Changes a setting in the pushed data directory, and updates the digest in the manifest.
fn forge(entry: &Path) {
    let text = "application_name = 'forged'\n";
    fs::write(entry.join("data/postgresql.auto.conf"), text).unwrap();
    let manifest = fs::read_to_string(entry.join("manifest")).unwrap();
    let (lines, _) = manifest.rsplit_once("end ").unwrap();
    let forged = lines.lines().map(|line| match line.strip_suffix(" postgresql.auto.conf") {
        Some(_) => format!("f {} 0 {} postgresql.auto.conf\n", text.len(), blake3::hash(text.as_bytes())),
        None => format!("{line}\n"),
    });
    let forged: String = forged.collect();
    assert!(forged != lines);
    fs::write(entry.join("manifest"), format!("{forged}end {}\n", blake3::hash(forged.as_bytes()))).unwrap();
}

/// Asserts that pgfresh rejects the entry in one line, with a hint.
fn assert_refused(outcome: &Outcome, words: &str) {
    assert_fails(outcome, &[words]);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let form =
        lines.len() == 2 && lines[0].starts_with("pgfresh: cannot ") && lines[1].starts_with("HINT:  ");
    assert!(form && outcome.code == Some(1), "{outcome}");
}

#[test]
fn a_forged_template_is_refused_and_built_instead() {
    let scene = project(User::Ourselves, CONFIG);
    let key = keygen(&scene, "k");
    assert_eq!(scene.run(["template", "push", "carried", "--key", "k"]).code, Some(0));
    let pull = |keys: &[&str]| elsewhere(&scene, keys, &["template", "pull", "carried"]);
    // Runs a suite that begins with a pull.
    let suite = |keys: &[&str]| {
        let pulled = pull(keys);
        let mut command = scene.pgfresh(["run", "--", ground::psql(), "-XAtqc"]);
        command.arg("SELECT setting FROM pg_file_settings WHERE name = 'application_name'");
        command.env("PGFRESH_CACHE", scene.place.join("elsewhere"));
        (pulled, finish(command).stdout)
    };
    assert!(pull(&[&key]).stdout.contains("taken over"));
    forge(&entry(&scene));
    let before = runs(&scene);
    // Without trusted keys, pgfresh uses the forged template: a manifest only proves that the files arrived as sent.
    let (pulled, seen) = suite(&[]);
    assert_eq!((pulled.code, seen.as_str(), runs(&scene)), (Some(0), "forged\n", before), "{pulled}");
    let (pulled, seen) = suite(&[&key]);
    assert_eq!((pulled.code, seen.as_str(), runs(&scene)), (Some(1), "", before + 1), "{pulled}");
    assert_refused(&pull(&[&key]), "it is not the one that was signed");
    // The forger signs the manifest again, with an untrusted key.
    keygen(&scene, "other");
    assert_eq!(scene.run(["template", "sign", "carried", "--key", "other"]).code, Some(0));
    assert_refused(&pull(&[&key]), "which is not trusted");
    leave(&scene);
}

#[test]
fn only_trusted_signatures_are_accepted() {
    let scene = project(User::Ourselves, CONFIG);
    let (old, new) = (keygen(&scene, "old"), keygen(&scene, "new"));
    let pull = |keys: &[&str], more: &[&str]| {
        elsewhere(&scene, keys, &[&["template", "pull", "carried"], more].concat())
    };
    assert_eq!(scene.run(["template", "push", "carried"]).code, Some(0));
    assert_refused(&pull(&[&old], &[]), "it is not signed");
    assert_eq!(pull(&[], &[]).code, Some(0));
    assert_eq!(pull(&[&old], &["--unsigned"]).code, Some(0));
    assert_refused(&elsewhere(&scene, &[&old], &["template", "verify", "carried"]), "it is not signed");
    for (file, [trusts, other]) in [("old", [&old, &new]), ("new", [&new, &old])] {
        assert_eq!(scene.run(["template", "sign", "carried", "--key", file]).code, Some(0));
        assert_eq!(pull(&[trusts], &[]).code, Some(0));
        // While keys rotate, a machine trusts both.
        assert_eq!(pull(&[other, trusts], &[]).code, Some(0));
        assert_refused(&pull(&[other], &[]), "which is not trusted");
        let verified = elsewhere(&scene, &[trusts], &["template", "verify", "carried"]);
        assert!(verified.code == Some(0) && verified.stdout.contains("signed with key "), "{verified}");
    }
    // pgfresh copies the other entries from a folder although it rejects one of them.
    let stray = scene.directory.join("carried/abcdef");
    fs::create_dir_all(stray.join("data")).unwrap();
    let outcome = pull(&[&new], &[]);
    assert_refused(&outcome, "abcdef\": it is not signed");
    assert!(outcome.stdout.contains("taken over"), "{outcome}");
    // The configuration file contains the keys, and keys in the environment replace them.
    scene.write("pgfresh.toml", &format!("{CONFIG}\n[cache]\nkeys = [\"{old}\"]\n"));
    fs::remove_dir_all(&stray).unwrap();
    assert_refused(&pull(&[], &[]), "which is not trusted");
    assert_eq!(pull(&[&new], &[]).code, Some(0));
    leave(&scene);
}

#[test]
fn nothing_is_pushed_that_nobody_would_take() {
    let scene = project(User::Ourselves, CONFIG);
    let key = keygen(&scene, "k");
    keygen(&scene, "other");
    let push = |more: &[&str]| elsewhere(&scene, &[&key], &[&["template", "push", "out"], more].concat());
    assert_refused(&push(&[]), "cannot push a template without a signature");
    assert_refused(
        &push(&["--key", "other"]),
        "cannot push: the signing key is not one of the trusted [cache] keys",
    );
    assert!(runs(&scene) == 0 && !scene.directory.join("out").exists(), "before anything is built");
    assert_eq!(push(&["--key", "k"]).code, Some(0));
    assert_refused(&push(&["--key", "k.pub"]), "it is not a secret key");
    assert_fails(&push(&["--key", "missing"]), &["could not read \"missing\""]);
    let nothing = elsewhere(&scene, &[], &["template", "verify", "out"]);
    assert_fails(&nothing, &["no public keys are configured for verification"]);
    assert_fails(&scene.run(["template", "sign", "out"]), &["no signing key is configured"]);
    assert_fails(&scene.run(["template", "sign", "migrations", "--key", "k"]), &["there is no template in"]);
}

#[test]
fn a_key_is_private_and_never_overwritten() {
    let scene = project(User::Ourselves, CONFIG);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" template keygen k"]).arg(scene.pgfresh([""]).get_program());
    scene.set(&mut command);
    assert_eq!(finish(command).code, Some(0));
    let mode = |name: &str| scene.directory.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("k"), mode("k.pub")), (0o600, 0o644));
    let before = fs::read(scene.directory.join("k")).unwrap();
    assert_fails(&scene.run(["template", "keygen", "k"]), &["\"k\" already exists", "never overwrites"]);
    fs::rename(scene.directory.join("k"), scene.directory.join("kept")).unwrap();
    assert_fails(&scene.run(["template", "keygen", "k"]), &["\"k.pub\" already exists"]);
    assert!(!scene.directory.join("k").exists());
    assert_eq!(fs::read(scene.directory.join("kept")).unwrap(), before);
    assert_fails(
        &scene.run(["template", "keygen", "no/such/folder"]),
        &["could not write \"no/such/folder\""],
    );
}

#[test]
fn the_secret_key_is_seen_by_nobody() {
    let config = CONFIG.replace("echo ran", "env >>environment; echo ran");
    let scene = project(User::Ourselves, &config);
    let key = keygen(&scene, "k");
    let text = fs::read_to_string(scene.directory.join("k")).unwrap();
    let secret = text.lines().nth(1).unwrap();
    let with_secret = |secret: &str, words: &[&str]| {
        let mut command = scene.pgfresh(words);
        command.env("PGFRESH_SIGNING_KEY", secret);
        finish(command)
    };
    // The variable contains the whole file, or only its last line.
    for value in [&text, secret] {
        let pushed = with_secret(value, &["template", "push", "carried", "-vv"]);
        assert_eq!(pushed.code, Some(0), "{pushed}");
        assert_eq!(elsewhere(&scene, &[&key], &["template", "pull", "carried"]).code, Some(0));
        assert!(!pushed.to_string().contains(secret), "{pushed}");
    }
    let setup = fs::read_to_string(scene.directory.join("environment")).unwrap();
    assert!(setup.contains("DATABASE_URL") && !setup.contains("PGFRESH_SIGNING_KEY"), "{setup}");
    let sql = "CREATE TABLE seen (line text); COPY seen FROM PROGRAM 'env; cat /proc/self/environ | tr \"\\0\" \"\\n\"'; SELECT * FROM seen";
    let script = "env; \"$0\" -XAtqc \"$1\"";
    let outcome = with_secret(secret, &["run", "-vv", "--", "sh", "-c", script, ground::psql(), sql]);
    assert!(outcome.code == Some(0) && outcome.stdout.contains("PGDATA"), "{outcome}");
    assert!(
        !outcome.to_string().contains("SIGNING_KEY") && !outcome.to_string().contains(secret),
        "{outcome}"
    );
    // Errors don't reveal a secret either: neither errors about a damaged key, nor errors about a secret key given
    // instead of a public key.
    let damaged = secret.replace('A', "B");
    for outcome in [
        with_secret(&damaged, &["template", "sign", "carried"]),
        scene.run(["template", "sign", "carried", "--key", secret]),
        with_secret(secret, &["template", "push", "carried", "--cache-key", &key, "--postgres", "/no/such"]),
        elsewhere(&scene, &[secret], &["template", "pull", "carried"]),
        scene.run(["template", "pull", "carried", "--cache-key", secret]),
    ] {
        let words = outcome.to_string();
        assert!(outcome.code != Some(0) && !words.contains(&secret[20..40]), "{outcome}");
        assert!(!words.contains(secret) && !words.contains(&damaged), "{outcome}");
    }
    scene.write("pgfresh.toml", &format!("[cache]\nkeys = [\"{secret}\"]\n"));
    let outcome = scene.run(["template", "pull", "carried"]);
    assert_fails(&outcome, &["pgfresh.toml:2: ", "expected a public key such as \"RWQ…\""]);
    assert!(!outcome.to_string().contains(secret), "{outcome}");
}
