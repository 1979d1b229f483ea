//! Tests that backups and standbys of the server contain the databases that pgfresh makes
//! meanwhile, with all their data.

use crate::common::{Scene, User};

/// Script that makes databases during a backup, before a standby starts from the backup, and while the standby
/// follows. Then it queries the standby.
const SCRIPT: &str = r#"
fill() { psql -XAtqd "$1" -c "CREATE TABLE mine AS SELECT count(*) FROM item; INSERT INTO item SELECT generate_series(1, 1000)"; }
pg_basebackup -D backup -X stream -c fast -R --max-rate=200M &
backup=$! number=0
while kill -0 $backup 2>/dev/null; do
    number=$((number + 1))
    fill during_$number
done
wait $backup
for number in 1 2 3 4 5; do fill before_$number; done
postgres -D backup -k "$PWD" -p 5432 -c listen_addresses= -c fsync=off >>log 2>&1 &
standby=$!
trap 'kill -QUIT $standby; wait $standby || true' EXIT
for number in 1 2 3 4 5; do fill after_$number; done
position=$(psql -XAtqd postgres -c "SELECT pg_current_wal_lsn()")
ask() { PGPASSWORD= psql -h "$PWD" -p 5432 -U postgres -XAtqd "$1" -c "$2"; }
attempt=0
until [ "$(ask postgres "SELECT pg_last_wal_replay_lsn() >= '$position'" 2>&1)" = t ]; do
    attempt=$((attempt + 1))
    if [ $attempt -gt 6000 ] || ! kill -0 $standby 2>/dev/null; then cat log >&2; exit 1; fi
    sleep 0.1
done
for name in $(ask postgres "SELECT datname FROM pg_database WHERE datname ~ '^(during|before|after)_' ORDER BY oid"); do
    echo "${name%_*}" "$(ask $name "SELECT count(*), (SELECT max(count) FROM mine) FROM item")"
done | sort | uniq -c | sed 's/^ *//'
"#;

#[test]
fn a_standby_has_every_database() {
    for &user in User::all() {
        // PostgreSQL refuses to run as root.
        if user.uid() == 0 {
            continue;
        }
        let scene = Scene::new(user);
        scene.write("schema.sql", "CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item VALUES (0)");
        scene.write("pgfresh.toml", "[template]\nsql = [\"schema.sql\"]\n");
        let had = scene.shell(&["--postgres", "15", "--linger", "1h"], SCRIPT);
        let had: Vec<_> = had.lines().map(|line| line.split_once(' ').unwrap()).collect();
        let at_least = |line: usize, count: u32, what: &str| {
            let (seen, name) = had[line];
            assert!(name == what && seen.parse::<u32>().unwrap() >= count, "{had:?}");
        };
        assert_eq!(had.len(), 3, "{had:?}");
        at_least(0, 5, "after 1001|1");
        at_least(1, 5, "before 1001|1");
        at_least(2, 2, "during 1001|1");
    }
}
