//! Tests busy sessions: a failover ends them in the same way as a server shutdown, and undoes what
//! they haven't committed.

use std::io::Write;

use serde_json::json;

use super::answer::shown;
use super::script::{run, simple, synced};
use super::side::Faulty;
use super::{ISOLATIONS, SCHEMA};
use crate::common::client::{Client, message, startup};
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major, wait_until};

on_every_major! {
    failover_cuts_busy_sessions_like_a_shutdown
    error_during_a_statement_undoes_it
}

/// Statement that runs for longer than a test waits.
const LONG: &str = "INSERT INTO entry SELECT 7, 'struck' FROM pg_sleep(3600)";
/// Counts the rows that busy sessions have written.
const WRITTEN: &str = "SELECT count(*) FROM entry WHERE word = 'struck'";
/// Counts the busy sessions that are running a statement.
const RUNNING: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%struck%'";

/// Work of a session when the failover ends it.
#[derive(Debug, Clone, Copy)]
enum Work {
    Simple,
    String,
    Extended,
    Pipeline,
    Pipelines,
    /// The client hasn't sent its Sync.
    Unsynchronized,
    /// The client has sent a part of its data.
    CopyIn,
}

impl Work {
    const ALL: [Self; 7] = [
        Self::Simple,
        Self::String,
        Self::Extended,
        Self::Pipeline,
        Self::Pipelines,
        Self::Unsynchronized,
        Self::CopyIn,
    ];

    fn messages(self) -> Vec<u8> {
        let before = "INSERT INTO entry VALUES (6, 'struck')";
        match self {
            Self::Simple => simple(LONG).bytes,
            Self::String => simple(&format!("{before}; {LONG}; SELECT 1")).bytes,
            Self::Extended => synced(run(LONG)).bytes,
            Self::Pipeline => synced([run(before), run(LONG), run("SELECT 1")].concat()).bytes,
            Self::Pipelines => {
                [LONG, "INSERT INTO entry VALUES (8, 'struck')"].map(|sql| synced(run(sql)).bytes).concat()
            }
            Self::Unsynchronized => [run(before), run(LONG)].concat(),
            Self::CopyIn => {
                let sql = "COPY entry FROM STDIN /* struck */";
                [simple(sql).bytes, message(b'd', b"6\tstruck\n")].concat()
            }
        }
    }

    /// Returns the messages from the start of the work to the end of the session, after `cut`.
    fn play(self, client: &mut Client, in_block: bool, cut: impl FnOnce()) -> Vec<String> {
        if in_block {
            client.ask("BEGIN");
            client.ask("INSERT INTO entry VALUES (5, 'struck')");
        }
        client.send(&self.messages());
        cut();
        let mut seen = Vec::new();
        while let (tag @ 1.., body) = client.read() {
            seen.push(shown(tag, &body));
        }
        seen
    }
}

/// Waits until a session of the lease `name` is busy. Queries the shared server, or the lease's own server.
fn wait_for_work(gateway: &Gateway, isolation: &str, name: &str) {
    wait_until("a busy session", || {
        if isolation != "server" {
            return gateway.direct("postgres", RUNNING).unwrap()[0][0].as_deref() == Some("1");
        }
        let mut watcher = gateway.connect_in_time(name, "");
        let count = watcher.value(RUNNING).unwrap();
        watcher.close();
        count == "1"
    });
}

fn client(gateway: &Gateway, name: &str) -> Client {
    Client::open(&gateway.serve.address(), gateway.serve.secret(), &startup(name, &[])).unwrap()
}

fn failover_cuts_busy_sessions_like_a_shutdown(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    let mut random = Random::new();
    let cases = Work::ALL.into_iter().flat_map(|work| [(work, false), (work, true)]);
    for (number, (work, in_block)) in depth::some_of(cases).into_iter().enumerate() {
        let isolation = *random.choose(&ISOLATIONS);
        let knows_faults = random.chance(50);
        println!("{work:?} {in_block} in isolation {isolation}, {knows_faults}, on PostgreSQL {major}");
        let real = Faulty { gateway: &gateway, isolation: "server" };
        let name = format!("real_{number}");
        real.lease(&name);
        let expected = work.play(&mut client(&gateway, &name), in_block, || {
            wait_for_work(&gateway, "server", &name);
            assert_eq!(gateway.http("POST", &format!("/v1/databases/{name}/restart"), "").0, 204);
        });
        assert!(expected.last().unwrap().contains(" C57P01 "), "{expected:?}");
        real.end(&name);

        let faulty = Faulty { gateway: &gateway, isolation };
        let name = format!("failover_{number}");
        faulty.lease(&name);
        if knows_faults {
            faulty.request(&name, &json!({"delay": "0s"}));
        }
        let seen = work.play(&mut client(&gateway, &name), in_block, || {
            wait_for_work(&gateway, isolation, &name);
            faulty.request(&name, &json!({"error": "failover"}));
        });
        assert_eq!(seen, expected, "left is the failover, right is the shutdown");
        assert_eq!(gateway.connect_in_time(&name, "").value(WRITTEN).unwrap(), "0");
        if isolation != "server" {
            assert_eq!(gateway.direct("postgres", RUNNING).unwrap()[0][0].as_deref(), Some("0"));
        }
        gateway.http("DELETE", &format!("/v1/databases/{name}"), "");
    }
}

fn error_during_a_statement_undoes_it(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    for isolation in ISOLATIONS {
        for (extended, error) in [(false, "57P01"), (true, "57P01"), (true, "57P02"), (false, "failover")] {
            let faulty = Faulty { gateway: &gateway, isolation };
            faulty.lease(isolation);
            let mut client = client(&gateway, isolation);
            let fault = json!({"error": error, "at": "during statement", "statement": "INSERT"});
            faulty.request(isolation, &fault);
            let bytes = if extended { synced(run(LONG)).bytes } else { simple(LONG).bytes };
            client.stream.write_all(&bytes).unwrap();
            let mut last = 0;
            while let (tag @ 1.., _) = client.read() {
                last = tag;
            }
            let expected = if error == "57P02" { b'N' } else { b'E' };
            assert_eq!(last, expected, "{error} in isolation {isolation}");
            wait_until("the end of the statement", || {
                isolation == "server"
                    || gateway.direct("postgres", RUNNING).unwrap()[0][0].as_deref() == Some("0")
            });
            assert_eq!(gateway.connect_in_time(isolation, "").value(WRITTEN).unwrap(), "0");
            faulty.end(isolation);
        }
    }
}
