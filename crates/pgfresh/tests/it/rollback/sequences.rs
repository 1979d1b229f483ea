//! Tests sequences in rollback isolation. A rollback doesn't undo their changes, so pgfresh resets them to the
//! template's values for the next lease, for any role.

use super::*;
use crate::common::depth;
use crate::common::random::Random;

/// Sequences of each kind: for a column, for an identity column, with a cache, and descending. The WAL contains all
/// but the unlogged sequences.
const SCHEMA: &str = "CREATE ROLE clerk LOGIN;
    CREATE TABLE item (id serial, number int GENERATED ALWAYS AS IDENTITY, word text);
    INSERT INTO item (word) VALUES ('a'), ('b');
    CREATE SEQUENCE cached CACHE 20;
    CREATE SEQUENCE down INCREMENT -3 START 40 MAXVALUE 40;
    CREATE SEQUENCE used START 7;
    SELECT nextval('used');
    GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO clerk;";
/// Unlogged sequences, which exist from `PostgreSQL` 15 on.
const UNLOGGED: &str = "CREATE UNLOGGED SEQUENCE unlogged START 3; GRANT ALL ON unlogged TO clerk;";

/// Returns a query for pgfresh's own sessions in a database. A new session for each lease would take
/// most of the lease's time.
fn ours_in(database: &str) -> String {
    format!(
        "SELECT coalesce(string_agg(pid::text, ' '), '') FROM pg_stat_activity \
         WHERE datname = '{database}' AND application_name = 'pgfresh'"
    )
}

impl Serve {
    fn rollback_as(&self, user: &str, database: &str) -> Client {
        let options = "-c pgfresh.isolation=rollback -c pgfresh.linger=0";
        let body = format!("user\0{user}\0database\0{database}\0options\0{options}\0\0");
        Client::open(&self.address(), self.secret(), &packet(0x0003_0000, body.as_bytes())).unwrap()
    }
}

/// Returns a query for the sequences' values.
fn stands(sequences: &[&str]) -> String {
    let each: Vec<_> =
        sequences.iter().map(|name| format!("(SELECT concat(last_value, is_called) FROM {name})")).collect();
    format!("SELECT concat_ws(' ', {})", each.join(", "))
}

/// Returns SQL that advances one or more sequences.
fn moved(random: &mut Random, sequences: &[&str]) -> String {
    let name = sequences[random.below(sequences.len())];
    match random.below(6) {
        0 => format!("SELECT nextval('{name}')"),
        1 => format!("SELECT count(nextval('{name}')) FROM generate_series(1, 40)"),
        2 => format!("SELECT setval('{name}', {}, {})", 5 + random.below(9), random.below(2) == 1),
        3 => "INSERT INTO item (word) VALUES ('c')".to_owned(),
        4 => format!("BEGIN; SELECT nextval('{name}'); ROLLBACK"),
        _ => format!("SELECT last_value FROM {name}"),
    }
}

#[test]
fn sequences_are_reset_for_any_role() {
    for major in majors() {
        let scene = Scene::new(User::Ourselves);
        let mut sequences = vec!["cached", "down", "used", "item_id_seq", "item_number_seq"];
        let mut schema = SCHEMA.to_owned();
        if major >= 15 {
            sequences.push("unlogged");
            schema.push_str(UNLOGGED);
        }
        scene.write("schema.sql", &schema);
        let postgres = postgres(major);
        let serve = Serve::at(scene, ["--sql", "schema.sql", "--postgres", &postgres]);
        let stand = stands(&sequences);
        let stands = serve.rollback("first").value(&stand).unwrap();
        let mut observer = serve.connect("observer", "").unwrap();
        let mut random = Random::new();
        for user in ["postgres", "clerk"] {
            let (database, mut ours) = (format!("of_{user}"), Vec::new());
            for lease in 0..depth::rounds(30) {
                let mut session = serve.rollback_as(user, &database);
                let found = session.value(&stand).unwrap();
                assert_eq!(found, stands, "lease {lease} of {user} on PostgreSQL {major}");
                ours.push(observer.value(&ours_in(&database)).unwrap());
                if random.below(3) == 0 {
                    session.value("BEGIN").unwrap();
                }
                for _ in 0..random.below(5) {
                    let sql = moved(&mut random, &sequences);
                    session.value(&sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
                }
                session.close();
            }
            ours.dedup();
            // The first leases don't have this session, and a superuser's leases never have it.
            let most = if user == "postgres" { 1 } else { 2 };
            assert!(
                ours.len() <= most && !ours.concat().contains(' '),
                "{user}: {ours:?}, {}",
                serve.http("GET", "/v1/status", "").1["dropped"]
            );
        }
    }
}
