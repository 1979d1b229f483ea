//! Tests lost connections: a fault has the same effect as a network that breaks at the same message.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use serde_json::json;

use super::network::{Network, Place};
use super::script::{run, simple, synced};
use super::side::{Faulty, Real};
use super::{ISOLATIONS, SCHEMA};
use crate::common::client::{Client, startup};
use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major, wait_until};

on_every_major! {
    lost_connections_equal_a_broken_network
}

/// Statement during which the connection is lost.
const INSERT: &str = "INSERT INTO entry VALUES (7, 'struck')";
/// Time during which a silent connection must not receive anything.
const SILENCE: Duration = Duration::from_millis(200);

/// Moments of a loss: the moment's name in a fault, and where the network breaks.
const MOMENTS: [(&str, Place, &str); 5] = [
    ("before statement", Place::Before, INSERT),
    ("during statement", Place::During, INSERT),
    ("after statement", Place::After, INSERT),
    ("before commit", Place::Before, "COMMIT"),
    ("after commit", Place::After, "COMMIT"),
];

/// One lost connection.
#[derive(Debug, Clone, Copy)]
struct Loss {
    moment: (&'static str, Place, &'static str),
    is_silent: bool,
    in_transaction: bool,
    extended: bool,
}

impl Loss {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for moment in MOMENTS {
            for case in 0..8 {
                let (is_silent, in_transaction, extended) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
                if in_transaction || moment.2 == INSERT {
                    all.push(Self { moment, is_silent, in_transaction, extended });
                }
            }
        }
        all
    }

    /// Whether the client's row is in the database after the loss.
    fn is_committed(&self) -> bool {
        let reaches_the_server = self.moment.1 != Place::Before;
        reaches_the_server && (!self.in_transaction || self.moment.2 == "COMMIT")
    }

    /// Runs the client's part after `prepare`, and returns what the client receives.
    fn play(&self, client: &mut Client, prepare: impl FnOnce()) -> Vec<String> {
        let mut seen = Vec::new();
        if self.in_transaction {
            for sql in ["BEGIN", INSERT].into_iter().take(if self.moment.2 == INSERT { 1 } else { 2 }) {
                seen.extend(client.ask(sql).into_iter().map(|message| format!("{message:?}")));
            }
        }
        prepare();
        client.send(&if self.extended { synced(run(self.moment.2)) } else { simple(self.moment.2) }.bytes);
        client
            .stream
            .set_read_timeout(Some(if self.is_silent { SILENCE } else { Duration::from_mins(1) }))
            .unwrap();
        for _ in 0..2 {
            let mut byte = [0];
            seen.push(match client.stream.read(&mut byte) {
                Ok(0) => "closed".to_owned(),
                Ok(_) => format!("message {}", char::from(byte[0])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => "silent".to_owned(),
                Err(error) => format!("{:?}", error.kind()),
            });
            if self.is_silent {
                // A silent connection accepts what the client sends.
                client.send(&simple("SELECT 1").bytes);
            }
        }
        seen
    }
}

/// Waits until the row is as expected. Locks the table, to be sure that an open transaction has ended.
fn expect_row(expected: bool, mut connect: impl FnMut() -> Connection) {
    let expected = if expected { "1" } else { "0" };
    wait_until("the outcome of the client's transaction", || {
        let mut reader = connect();
        reader.rows("BEGIN; LOCK TABLE entry").unwrap();
        let found = reader.value("SELECT count(*) FROM entry WHERE id = 7").unwrap();
        reader.close();
        found == expected
    });
}

fn lost_connections_equal_a_broken_network(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    let real = Real::new(&gateway);
    let network = Network::new(gateway.socket_directory().join(".s.PGSQL.5432"));
    let mut random = Random::new();
    for (number, loss) in depth::some_of(Loss::all()).into_iter().enumerate() {
        let isolation = *random.choose(&ISOLATIONS);
        println!("{loss:?} in isolation {isolation} on PostgreSQL {major}");
        real.refresh();
        let mut client = Client::knock(&network.address);
        client.send(&startup(Real::DATABASE, &[]));
        client.read_startup_response().unwrap();
        let (moment, place, text) = loss.moment;
        let expected = loss.play(&mut client, || network.cut(text, place, loss.is_silent));
        drop(client);
        expect_row(loss.is_committed(), || real.connect());

        let faulty = Faulty { gateway: &gateway, isolation };
        let name = format!("lost_{number}");
        faulty.lease(&name);
        let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
        let mut client = Client::open(&address, secret, &startup(&name, &[])).unwrap();
        let connection = if loss.is_silent { "silent" } else { "reset" };
        let fault = json!({"connection": connection, "at": moment});
        let seen = loss.play(&mut client, || faulty.request(&name, &fault));
        drop(client);
        expect_row(loss.is_committed(), || gateway.connect_in_time(&name, ""));
        assert_eq!(seen, expected, "left is the fault, right is the broken network");
        faulty.end(&name);
    }
}
