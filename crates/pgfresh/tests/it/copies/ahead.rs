//! Tests the copies that a server makes before its first client, because earlier servers with the same
//! cache entry needed them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lease::NEEDED_COPIES_NOTE;
use template::ServerOptions;

use crate::common::leases::{LeaseFixture, params};
use crate::common::{Scene, User, ground};

/// Starts a server after an `earlier` server with the same cache entry.
fn after(earlier: impl FnOnce(&LeaseFixture)) -> LeaseFixture {
    LeaseFixture::noted(ServerOptions::default(), "SELECT", None, Duration::from_mins(10), earlier)
}

/// Returns the path of the note about the template's copies.
fn path(server: &LeaseFixture) -> PathBuf {
    let oid = server.admin("SELECT oid FROM pg_database WHERE datname = 'pgfresh_template_app'");
    let name = format!("{NEEDED_COPIES_NOTE}-{}", oid[0][0].as_ref().unwrap());
    server.started.entry.as_ref().unwrap().data().with_file_name(name)
}

fn note(server: &LeaseFixture, text: &str) {
    fs::write(path(server), text).unwrap();
}

/// Waits until the server has made all copies that it makes without a client. Returns the number of copies.
fn copies_without_clients(server: &LeaseFixture) -> usize {
    server.leases.settle(Duration::from_mins(1));
    let status = server.leases.status();
    assert_eq!(status.created.0, status.ready[0].1 as u64);
    status.ready[0].1
}

#[test]
fn noted_copies_are_ready_before_first_client() {
    // When fewer than two databases are ready, pgfresh makes more for the next clients.
    let server = after(|earlier| note(earlier, "14"));
    assert_eq!(copies_without_clients(&server), 14);
    for client in 0..12 {
        drop(server.connect_with(&format!("name{client}"), None, &params("postgres")).unwrap());
    }
    assert_eq!(server.leases.status().created.0, 14, "all clients found a ready copy");
}

#[test]
fn server_with_clients_notes_needed_copies() {
    let server = after(|earlier| {
        let open: Vec<_> = (0..8)
            .map(|client| earlier.connect_with(&format!("name{client}"), None, &params("postgres")).unwrap())
            .collect();
        drop(open);
    });
    // A note below three would be redundant, because each server starts with two copies.
    let noted = fs::read_to_string(path(&server)).map_or(2, |note| note.parse::<usize>().unwrap());
    assert!((2..=8).contains(&noted), "{noted}");
    assert_eq!(copies_without_clients(&server), noted);
}

#[test]
fn fewer_clients_lower_the_note_by_half() {
    let server = after(|earlier| {
        note(earlier, "13");
        drop(earlier.connect_with("a", None, &params("postgres")).unwrap());
    });
    assert_eq!(copies_without_clients(&server), 7);
}

/// Half of the space for databases stays free. The fixture's server has space for about sixty.
#[test]
fn any_note_of_copies_is_harmless() {
    for (text, least, most) in [("", 2, 2), ("-1", 2, 2), ("99999999999999999999", 2, 2), ("1000000", 3, 64)]
    {
        let server = after(|earlier| note(earlier, text));
        let copies = copies_without_clients(&server);
        assert!((least..=most).contains(&copies), "{copies} for {text:?}");
        drop(server.connect_with("a", None, &params("postgres")).unwrap());
    }
}

#[test]
fn note_that_cannot_be_written_disturbs_no_client() {
    let server = after(|earlier| {
        fs::create_dir_all(path(earlier).join("inside")).unwrap();
        drop(earlier.connect_with("a", None, &params("postgres")).unwrap());
    });
    assert_eq!(copies_without_clients(&server), 2);
    drop(server.connect_with("a", None, &params("postgres")).unwrap());
}

#[test]
fn each_command_has_its_own_note() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("app.sql", "CREATE TABLE t ()");
    let notes = || {
        let images = fs::read_dir(scene.cache.join("images")).unwrap().map(|image| image.unwrap().path());
        let files = images.filter(|image| image.is_dir()).flat_map(|image| fs::read_dir(image).unwrap());
        let paths = files.map(|file| file.unwrap().path());
        let is_note =
            |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(NEEDED_COPIES_NOTE);
        let notes = paths.filter(is_note).map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
        notes.collect::<Vec<_>>()
    };
    let run = |script: &str| {
        let outcome = scene.run(["run", "--sql", "app.sql", "--", "sh", "-c", script, ground::psql()]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
    };
    let suite =
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \"$0\" -Xqc 'SELECT FROM t' \"dbname=n$i\" & done; wait";
    run(suite);
    let after_suite = notes();
    assert_eq!(after_suite.len(), 1, "{after_suite:?}");
    run("\"$0\" -Xqc 'SELECT FROM t' dbname=n1");
    assert_eq!(notes(), after_suite);
}
