//! Tests sessions that the server refuses or ends: a fault sends the same messages as a server that is full, is
//! starting up, or crashes.

use serde_json::json;

use super::answer::shown;
use super::network::Network;
use super::script::simple;
use super::side::{Faulty, Real};
use super::{ISOLATIONS, SCHEMA};
use crate::common::client::{Client, startup};
use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::{on_every_major, wait_until};

on_every_major! {
    refused_connections_equal_those_of_a_full_server
    starting_servers_refuse_connections_as_recorded
    sessions_end_as_in_a_crash
    failover_ends_refuses_and_becomes_read_only
}

/// Sends a startup message, and returns all messages until the connection ends.
fn refusal(address: &str, database: &str) -> Vec<String> {
    let mut client = Client::knock(address);
    client.send(&startup(database, &[]));
    until_end(&mut client)
}

fn until_end(client: &mut Client) -> Vec<String> {
    let shown = |(tag, body): (u8, Vec<u8>)| if tag == 0 { "end".to_owned() } else { shown(tag, &body) };
    client.until_ready().into_iter().map(shown).collect()
}

fn network(gateway: &Gateway) -> Network {
    Network::new(gateway.socket_directory().join(".s.PGSQL.5432"))
}

fn refused_connections_equal_those_of_a_full_server(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &["--set", "max_connections=30"]);
    let network = network(&gateway);
    let mut all = Vec::new();
    let mut expected = Vec::new();
    // If one of the server's processes ends in between, there is space for another session.
    wait_until("a full server", || {
        while let Ok(connection) = Connection::open(&gateway.server(), "postgres", &[]) {
            all.push(connection);
        }
        expected = refusal(&network.address, "postgres");
        expected[0].contains(" C53300 ")
    });
    all.into_iter().for_each(Connection::close);
    gateway.wait_for_server();
    for isolation in ISOLATIONS {
        let faulty = Faulty { gateway: &gateway, isolation };
        faulty.lease(isolation);
        faulty.request(isolation, &json!({"error": "53300", "at": "connect"}));
        assert_eq!(refusal(&gateway.serve.address(), isolation), expected, "in isolation {isolation}");
        gateway.connect_in_time(isolation, "").close();
        faulty.end(isolation);
    }
}

/// The time between the start of a server and its first session is too short for a test. The recorded messages come
/// from servers that waited for a slow `restore_command`.
fn starting_servers_refuse_connections_as_recorded(major: u32) {
    let place = if major >= 18 {
        "Fbackend_startup.c | L# | RBackendInitialize"
    } else {
        "Fpostmaster.c | L# | RProcessStartupPacket"
    };
    let message = "E SFATAL | VFATAL | C57P03 | Mthe database system is starting up";
    let expected = [format!("{message} | {place}"), "end".to_owned()];
    let gateway = Gateway::start(major, SCHEMA, &[]);
    for isolation in ISOLATIONS {
        let faulty = Faulty { gateway: &gateway, isolation };
        faulty.lease(isolation);
        faulty.request(isolation, &json!({"error": "57P03", "at": "connect", "times": 2}));
        for _ in 0..2 {
            assert_eq!(refusal(&gateway.serve.address(), isolation), expected, "in isolation {isolation}");
        }
        gateway.connect_in_time(isolation, "").close();
        faulty.end(isolation);
    }
}

fn sessions_end_as_in_a_crash(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    let real = Real::new(&gateway);
    for isolation in ISOLATIONS {
        let faulty = Faulty { gateway: &gateway, isolation };
        faulty.lease(isolation);
        let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
        let mut client = Client::open(&address, secret, &startup(isolation, &[])).unwrap();
        faulty.request(isolation, &json!({"error": "57P02"}));
        client.send(&simple("SELECT 1").bytes);
        let seen = until_end(&mut client);
        drop(client);
        faulty.end(isolation);
        let mut expected = Vec::new();
        wait_until("a crash that says why", || {
            expected = crash(&real);
            expected.len() > 1
        });
        assert_eq!(seen, expected, "in isolation {isolation}");
    }
}

/// Kills a backend, and returns what another session receives. On a busy machine, that can be only the end.
fn crash(real: &Real<'_>) -> Vec<String> {
    real.wait();
    let network = network(real.gateway);
    let mut client = Client::knock(&network.address);
    client.send(&startup(Real::DATABASE, &[]));
    client.read_startup_response().unwrap();
    let mut victim = real.connect();
    let pid = victim.value("SELECT pg_backend_pid()").unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let seen = until_end(&mut client);
    real.wait();
    seen
}

fn failover_ends_refuses_and_becomes_read_only(major: u32) {
    let gateway = Gateway::start(major, SCHEMA, &[]);
    let real = Real::new(&gateway);
    let network = network(&gateway);
    let mut terminated = Client::knock(&network.address);
    terminated.send(&startup(Real::DATABASE, &[]));
    terminated.read_startup_response().unwrap();
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    real.connect().rows(others).unwrap();
    let expected = until_end(&mut terminated);
    for isolation in ISOLATIONS {
        let faulty = Faulty { gateway: &gateway, isolation };
        faulty.lease(isolation);
        let (address, secret) = (gateway.serve.address(), gateway.serve.secret());
        let mut client = Client::open(&address, secret, &startup(isolation, &[])).unwrap();
        // Transactions in rollback isolation are always writable.
        let is_read_only = isolation != "rollback";
        let mut fault = json!({"error": "failover", "duration": "1s"});
        if is_read_only {
            fault["read_only"] = json!("10min");
        }
        faulty.request(isolation, &fault);
        assert_eq!(until_end(&mut client), expected, "in isolation {isolation}");
        let refused = gateway.connect(isolation, "").err().expect("a refusal");
        assert_eq!(refused.sqlstate, "57P03", "in isolation {isolation}");
        let mut session = gateway.connect_in_time(isolation, "");
        let insert = session.rows("INSERT INTO entry VALUES (1, 'late')").map_err(|error| error.sqlstate);
        let expected = if is_read_only { Err("25006".to_owned()) } else { Ok(Vec::new()) };
        assert_eq!(insert, expected, "in isolation {isolation}");
        session.close();
        faulty.end(isolation);
    }
}
