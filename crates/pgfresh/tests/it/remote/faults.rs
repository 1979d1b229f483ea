//! Tests faults of a remote: each causes one warning, and the result is correct. pgfresh never
//! waits for a remote forever.

use super::*;
use crate::common::random::Random;

/// Returns faults of all kinds, at random positions in a complete response of `whole` bytes.
fn faults(whole: u64, random: &mut Random) -> Vec<Fault> {
    let mut place = || random.number() % whole;
    vec![
        Fault::Refused,
        Fault::Status(503),
        Fault::Status(500),
        Fault::Status(403),
        Fault::Silent,
        Fault::RedirectLoop,
        Fault::Endless,
        Fault::CutEach(place()),
        Fault::CutEach(place() / 20),
        Fault::CutOnce(place()),
        Fault::CutOnce(place()),
        Fault::Drip(0),
        Fault::Drip(place()),
        Fault::Freeze(0),
        Fault::Freeze(place()),
        Fault::Flip(place()),
        Fault::Flip(place()),
        Fault::Flip(place()),
    ]
}

/// Stores that can be behind a proxy.
const SERVERS: [Store; 5] = [Store::Http, Store::S3, Store::Gcs, Store::Azure, Store::Oci];

#[test]
fn read_faults_give_one_warning() {
    let mut random = Random::new();
    for store in depth::some_of(SERVERS) {
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "build"));
        let plain = Proxy::start(running.port.unwrap(), Fault::None);
        let (url, variables) = running.through(plain.port);
        assert!(assert_right(&finish(fleet.pgfresh("reader", &url, &variables, &ask())), "reader"));
        for _ in 0..depth::rounds(1) {
            for fault in depth::some_of(faults(plain.sent(), &mut random)) {
                let context = format!("{store:?} {fault:?} of {} bytes", plain.sent());
                println!("{context}");
                let proxy = Proxy::start(running.port.unwrap(), fault);
                let (url, variables) = running.through(proxy.port);
                fleet.forget("faulty");
                let outcome = finish(fleet.pgfresh("faulty", &url, &variables, &ask()));
                println!("{}", warnings(&outcome).concat());
                let fetched = assert_right(&outcome, &context);
                assert_eq!(warnings(&outcome).len(), usize::from(!fetched), "{context}: {outcome}");
                if matches!(fault, Fault::CutOnce(_)) && store != Store::Http {
                    // pgfresh requests the head only once, and continues the other downloads where
                    // they were interrupted.
                    assert!(
                        fetched || outcome.stderr.contains("could not read the "),
                        "{context}: {outcome}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_cut_download_resumes() {
    for store in depth::some_of([Store::S3, Store::Gcs, Store::Azure, Store::Oci]) {
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        assert!(!assert_right(&finish(fleet.pusher("builder", &running, &ask())), "build"));
        // Each part is smaller than a frame, and larger than the head and the tree.
        let proxy = Proxy::start(running.port.unwrap(), Fault::CutEach(70_000));
        let (url, variables) = running.through(proxy.port);
        let outcome = finish(fleet.pgfresh("reader", &url, &variables, &ask()));
        assert!(assert_right(&outcome, &format!("{store:?}")), "{store:?}: {outcome}");
        assert!(proxy.connections() > 20, "{}", proxy.connections());
    }
}

#[test]
fn write_faults_give_no_error() {
    let mut random = Random::new();
    for store in depth::some_of([Store::S3, Store::Azure, Store::Oci]) {
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        assert!(!assert_right(&finish(fleet.pgfresh("alone", "", &[], &ask())), "alone"));
        for round in 0..depth::rounds(1) {
            for fault in depth::some_of(faults(4000, &mut random)) {
                let context = format!("{store:?} {fault:?}");
                println!("{context}");
                let proxy = Proxy::start(running.port.unwrap(), fault);
                let (url, variables) = running.through(proxy.port);
                fleet.forget("faulty");
                // Builds a different template each time.
                fleet.scene.write("migrations/0002.sql", &format!("-- {round} {fault:?}"));
                let mut command = fleet.pgfresh("faulty", &url, &variables, &ask());
                command.env("PGFRESH_SIGNING_KEY", &fleet.secret).env("PGFRESH_CACHE_PUSH", "always");
                let outcome = finish(command);
                println!("{}", warnings(&outcome).concat());
                assert!(!assert_right(&outcome, &context));
                fleet.forget("reader");
                let outcome = finish(fleet.reader("reader", &running, &ask()));
                assert_right(&outcome, &context);
                assert!(warnings(&outcome).is_empty(), "{context}: {outcome}");
            }
        }
        // An explicit push fails.
        let proxy = Proxy::start(running.port.unwrap(), Fault::Status(503));
        let (url, variables) = running.through(proxy.port);
        fleet.scene.write("migrations/0002.sql", "-- the last");
        let mut command = fleet.pgfresh("faulty", &url, &variables, &["template", "push"]);
        command.env("PGFRESH_SIGNING_KEY", &fleet.secret);
        let outcome = finish(command);
        assert!(outcome.code == Some(1) && outcome.stderr.contains("could not push to "), "{outcome}");
    }
}

#[test]
fn errors_of_remotes_show_no_secret() {
    let fleet = Fleet::new();
    for fault in [Fault::Status(403), Fault::Refused, Fault::RedirectLoop] {
        let proxy = Proxy::start(1, fault);
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", proxy.port)),
            ("AWS_ACCESS_KEY_ID", "hiddenid".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "hiddenkey".to_owned()),
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
            ("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{}", proxy.port)),
            ("AZURE_STORAGE_SAS_TOKEN", "sv=2021&sig=hiddensignature".to_owned()),
        ];
        let http = format!("http://me:hiddenword@127.0.0.1:{}/x", proxy.port);
        for url in ["s3://templates", "az://templates", &http] {
            for words in [&["-vv", "run", "--", "true"][..], &["template", "list"], &["template", "pull"]] {
                fleet.forget("any");
                let outcome = finish(fleet.pgfresh("any", url, &variables, words));
                assert!(!format!("{outcome}").contains("hidden"), "{url} {words:?} {fault:?}: {outcome}");
            }
        }
    }
}
