//! Tests two concurrent pushers, and a pusher that is killed: no reader finds an incomplete template.

use std::time::{Duration, Instant};

use super::*;
use crate::common::collect;
use crate::common::random::Random;

#[test]
fn two_that_push_at_once_do_no_harm() {
    for store in depth::some_of([Store::File, Store::S3, Store::Gcs, Store::Azure, Store::Oci]) {
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        let pushers = ["one", "two"].map(|machine| {
            let mut command = fleet.pusher(machine, &running, &ask());
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        });
        for pusher in pushers {
            let outcome = collect(pusher);
            assert_right(&outcome, &format!("{store:?}"));
            assert!(warnings(&outcome).is_empty(), "{store:?}: {outcome}");
        }
        let outcome = finish(fleet.reader("reader", &running, &ask()));
        assert!(assert_right(&outcome, &format!("{store:?}")), "{store:?}: {outcome}");
    }
}

#[test]
fn a_killed_pusher_leaves_no_incomplete_template() {
    let mut random = Random::new();
    for store in depth::some_of([Store::File, Store::S3, Store::Gcs, Store::Azure, Store::Oci]) {
        let fleet = Fleet::new();
        let running = store.start(&fleet.scene);
        let push = &["template", "push"];
        let built = finish(fleet.pgfresh("builder", "", &[], &["template", "build"]));
        assert_eq!(built.code, Some(0), "{built}");
        let begun = Instant::now();
        let dry = finish(fleet.pgfresh("builder", "", &[], &["template", "list"]));
        assert_eq!(dry.code, Some(0));
        let longest = begun.elapsed() + Duration::from_millis(600);
        for _ in 0..depth::rounds(4) {
            let mut command = fleet.pusher("builder", &running, push);
            let mut pusher = command
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let moment = random.moment(longest);
            std::thread::sleep(moment);
            drop(pusher.kill());
            drop(pusher.wait());
            fleet.forget("reader");
            let outcome = finish(fleet.reader("reader", &running, &ask()));
            let context = format!("{store:?} after {moment:?}");
            assert_right(&outcome, &context);
            assert!(warnings(&outcome).is_empty(), "{context}: {outcome}");
        }
        let outcome = finish(fleet.pusher("builder", &running, push));
        assert_eq!(outcome.code, Some(0), "{outcome}");
        fleet.forget("reader");
        assert!(assert_right(&finish(fleet.reader("reader", &running, &ask())), "in the end"));
    }
}
