//! Tests trust in remotes: pgfresh only uses templates that a trusted key has signed for the same fingerprint,
//! although others can write to the store.

use super::*;
use crate::common::random::Random;

/// Returns a store with the template, and the path of the template's head.
fn pushed(fleet: &Fleet) -> (RunningStore, PathBuf) {
    let running = Store::File.start(&fleet.scene);
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "build"));
    let head = running.folder.join("heads").join(fleet.fingerprint());
    assert!(head.is_file());
    (running, head)
}

/// Checks that a new machine builds the template, and reports the reason in one line.
fn assert_refused(fleet: &Fleet, running: &RunningStore, why: &str) {
    fleet.forget("reader");
    let before = fleet.builds();
    let outcome = finish(fleet.reader("reader", running, &ask()));
    assert!(!assert_right(&outcome, why) && fleet.builds() == before + 1, "{outcome}");
    assert!(warnings(&outcome).len() == 1 && warnings(&outcome)[0].contains(why), "{why}: {outcome}");
}

#[test]
fn heads_without_trusted_signature_are_unused() {
    let fleet = Fleet::new();
    let (running, head) = pushed(&fleet);
    let good = fs::read_to_string(&head).unwrap();
    // Another template, signed with the correct key.
    fleet.scene.write("migrations/0002.sql", "CREATE TABLE other (id int);");
    assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "another"));
    let other = fs::read_to_string(running.folder.join("heads").join(fleet.fingerprint())).unwrap();
    fs::remove_file(fleet.scene.directory.join("migrations/0002.sql")).unwrap();
    fs::write(&head, &other).unwrap();
    assert_refused(&fleet, &running, "its signature belongs to template");
    // The other template's tree with this template's head.
    let line = |text: &str| text.lines().nth(1).unwrap().to_owned();
    fs::write(&head, good.replace(&line(&good), &line(&other))).unwrap();
    assert_refused(&fleet, &running, "is not the one that was signed");
    // Heads that are unsigned, from a newer pgfresh, or empty.
    let unsigned: String = good.split_inclusive('\n').take(7).collect();
    for (text, why) in [
        (unsigned.as_str(), "its signature is damaged"),
        (&good.replacen("remote 1", "remote 2", 1), "a newer pgfresh has written it"),
        ("", "it is not a template head"),
        (&"x".repeat(1 << 20), "it is too long"),
    ] {
        fs::write(&head, text).unwrap();
        assert_refused(&fleet, &running, why);
    }
    // A head that is signed with an untrusted key.
    fs::remove_file(&head).unwrap();
    let (public, secret) = keygen(&fleet.scene, "foreign");
    let mut command = fleet.pusher("builder", &running, &["template", "push"]);
    command.env("PGFRESH_CACHE_KEYS", &public).env("PGFRESH_SIGNING_KEY", &secret);
    assert_eq!(finish(command).code, Some(0));
    assert_refused(&fleet, &running, "which is not trusted");
    // A machine that can push replaces the head.
    let outcome = finish(fleet.pusher("builder", &running, &["template", "push"]));
    assert!(outcome.stdout.contains("pushed, "), "{outcome}");
    fleet.forget("reader");
    assert!(assert_right(&finish(fleet.reader("reader", &running, &ask())), "replaced"));
}

#[test]
fn an_older_head_is_never_used() {
    let fleet = Fleet::new();
    let (running, head) = pushed(&fleet);
    let old = fs::read_to_string(&head).unwrap();
    // The time in a head is in whole seconds.
    let new = loop {
        fs::remove_file(&head).unwrap();
        assert_eq!(finish(fleet.pusher("builder", &running, &["template", "push"])).code, Some(0));
        let new = fs::read_to_string(&head).unwrap();
        if new != old {
            break new;
        }
    };
    assert!(assert_right(&finish(fleet.reader("seen", &running, &ask())), "new"));
    let forget = |fleet: &Fleet| {
        let outcome = finish(fleet.pgfresh("seen", "", &[], &["template", "rm", "--all"]));
        assert_eq!(outcome.code, Some(0), "{outcome}");
    };
    forget(&fleet);
    fs::write(&head, &old).unwrap();
    let outcome = finish(fleet.reader("seen", &running, &ask()));
    assert!(
        !assert_right(&outcome, "old") && warnings(&outcome)[0].contains("older than one that was seen"),
        "{outcome}"
    );
    forget(&fleet);
    fs::write(&head, &new).unwrap();
    assert!(assert_right(&finish(fleet.reader("seen", &running, &ask())), "new again"));
}

#[test]
fn changed_stores_give_the_template_or_builds() {
    let mut random = Random::new();
    let fleet = Fleet::new();
    let (running, head) = pushed(&fleet);
    let whole = |folder: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(folder).unwrap().flatten();
        files.map(|file| (file.path(), fs::read(file.path()).unwrap())).collect()
    };
    let mut files = whole(&running.folder.join("blobs"));
    files.push((head.clone(), fs::read(&head).unwrap()));
    for _ in 0..depth::rounds(5) {
        let (path, bytes) = random.choose(&files).clone();
        let mut changed = bytes.clone();
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => changed[at] ^= 1 << random.below(8),
            1 => changed.truncate(at),
            2 => changed.extend_from_slice(&bytes[..at]),
            _ => changed[at..].fill(0),
        }
        fs::write(&path, &changed).unwrap();
        fleet.forget("reader");
        let context = format!("{} at {at}", path.display());
        let outcome = finish(fleet.reader("reader", &running, &ask()));
        let fetched = assert_right(&outcome, &context);
        assert_eq!(warnings(&outcome).len(), usize::from(!fetched), "{context}: {outcome}");
        fs::write(&path, &bytes).unwrap();
    }
    fleet.forget("reader");
    assert!(assert_right(&finish(fleet.reader("reader", &running, &ask())), "unchanged"));
}
