//! Tests access from other machines: clients prove that they know the secret without sending it,
//! and HTTP requires TLS.

use super::drivers::installed;
use crate::common::client::{Client, startup};
use crate::common::gateway::Gateway;
use crate::common::serve::Serve;
use crate::common::{Scene, User, as_root, finish, ground, wait_until};

/// Script that makes a network with one address, and then runs a server on all addresses until the rest
/// of the script has ended.
const SCRIPT: &str = r#"
ip link set lo up
ip address add 198.51.100.7/32 dev lo
mkfifo hold
"$0" serve --listen 0.0.0.0 --json <hold >ready &
exec 3>hold
until [ -s ready ]; do sleep 0.01; done
said() { sed 's|.*"'$1'":"\{0,1\}\([^",]*\).*|\1|' ready; }
port=$(said port) root=$(said root_certificate)
ask() { "$PSQL" -XAtqc 'SELECT current_database()' "postgresql://postgres:$1@198.51.100.7:$port/$2" 2>&1 || true; }
ask hush far
ask wrong far | grep -o "password authentication failed" | head -1
"$PSQL" -XAtqc 'SELECT 1' "$(said url)"
# The server does not know this address.
"$PSQL" -XAtqc 'SELECT 2' "host=198.51.100.7 port=$port user=postgres password=hush dbname=far sslmode=verify-full sslrootcert=$root channel_binding=require"
http() { "$PYTHON" -c '
import ssl, sys, urllib.error, urllib.request
scheme, root, port, secret = sys.argv[1:]
request = urllib.request.Request(f"{scheme}://198.51.100.7:{port}/v1/databases", b"", method="POST")
request.add_header("Authorization", f"Bearer {secret}")
try:
    print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=root)).status)
except urllib.error.HTTPError as error:
    print(error.code)
' "$1" "$root" "$port" "$2"; }
http https hush
http https wrong
http http hush
exec 3>&-
wait
"#;

#[test]
fn only_the_secret_admits_remote_clients() {
    if !as_root("make a network") {
        return;
    }
    let scene = Scene::new(User::Ourselves);
    let mut command = std::process::Command::new("unshare");
    command.args(["--net", "sh", "-euc", SCRIPT]).arg(ground::program());
    scene.set(&mut command);
    command.env("PGFRESH_PASSWORD", "hush").env("PSQL", ground::psql());
    command.env("PYTHON", installed("python/bin/python"));
    let outcome = finish(command);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "far\npassword authentication failed\n1\n2\n201\n401\n403\n"),
        "{outcome}"
    );
}

/// Clients on this machine connect to an address other than loopback, where the rules for other machines apply.
#[test]
fn proofs_are_asked_beyond_loopback_and_by_tls() {
    let psql = |serve: &Serve, host: &str, words: &str| {
        let mut psql = std::process::Command::new(ground::psql());
        let port = &serve.ready["port"];
        psql.args(["-XAtqc", "SELECT current_database()"]);
        psql.arg(format!("host={host} port={port} user=postgres dbname=near {words}"));
        psql.env_clear().env("PGPASSWORD", serve.secret());
        finish(psql)
    };
    let proved = "sslmode=require channel_binding=require";
    let serve = Serve::at(Scene::new(User::Ourselves), ["--listen", "127.0.0.2"]);
    let outcome = psql(&serve, "127.0.0.2", proved);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "near\n"), "{outcome}");
    let outcome = psql(&serve, "127.0.0.2", "sslmode=disable");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "near\n"), "{outcome}");
    let serve = Serve::at(Scene::new(User::Ourselves), ["--listen", "127.0.0.1", "--tls"]);
    let outcome = psql(&serve, "127.0.0.1", proved);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "near\n"), "{outcome}");
    // On the usual address, a proof without TLS would take time without protecting anything, so the gateway
    // requests the password.
    Client::open(&serve.address(), serve.secret(), &startup("near", &[])).unwrap().close();
}

#[test]
fn listening_beyond_loopback_requires_a_password() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let mut command = scene.pgfresh(["serve", "--listen", "0.0.0.0"]);
    command.env("PGFRESH_PASSWORD", "");
    let outcome = finish(command);
    // pgfresh fails before it builds a template.
    assert!(!scene.cache.exists(), "{outcome}");
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (
            Some(1),
            "pgfresh: cannot listen on 0.0.0.0 without a password\n\
             HINT:  Set PGFRESH_PASSWORD to a password, and give it to the clients.\n"
        ),
        "{outcome}"
    );
}

#[test]
fn passwords_unfit_for_urls_are_refused() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    for password in ["a b", "ü"] {
        let mut command = scene.pgfresh(["serve"]);
        command.env("PGFRESH_PASSWORD", password);
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        assert!(!scene.cache.exists(), "{outcome}");
        assert!(
            outcome.stderr.starts_with("pgfresh: cannot use the password in PGFRESH_PASSWORD\n"),
            "{outcome}"
        );
    }
}

/// Kubernetes sets the variable in all containers in a namespace that has a service with this name.
#[test]
fn kubernetes_service_variables_are_ignored() {
    let scene = Scene::new(User::Ourselves);
    let with_port = |port: &str| {
        let mut command = scene.pgfresh(["serve"]);
        command.env("PGFRESH_PORT", port).stdin(std::process::Stdio::piped());
        finish(command)
    };
    let outcome = with_port("tcp://10.96.0.7:5432");
    assert!(outcome.code == Some(0) && outcome.stdout.contains("@127.0.0.1:"), "{outcome}");
    for wrong in ["udp://10.96.0.7:5432", "65536", "-1", ""] {
        let outcome = with_port(wrong);
        assert!(outcome.code == Some(2) && outcome.stderr.contains("PGFRESH_PORT"), "{wrong}: {outcome}");
    }
}

#[test]
fn an_empty_password_is_none() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["run", "--", "sh", "-c", "test -n \"$PGPASSWORD\" && echo random"]);
    command.env("PGFRESH_PASSWORD", "");
    let outcome = finish(command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "random\n"), "{outcome}");
}

/// The password contains every printable ASCII character, including those with a meaning in URLs.
#[test]
fn any_password_and_name_work_in_urls() {
    let scene = Scene::new(User::Ourselves);
    let password: String = ('!'..='~').collect();
    let name = "a/b @:?#%41 é&='\\";
    let psql = ground::psql();
    let script = format!(
        "test \"$PGPASSWORD\" = \"$WANTED\"
         {psql} -XAtqc 'SELECT current_database()' \"$DATABASE_URL\"
         PGDATABASE=\"$NAME\" {psql} -XAtqc 'SELECT current_database()'
         {psql} -XAtqc 'SELECT current_database()' \"$(\"$PGFRESH\" url \"$NAME\")\"
         \"$PGFRESH\" reset \"$NAME\" && \"$PGFRESH\" release \"$NAME\" && echo released"
    );
    let mut command = scene.pgfresh(["run", "--", "sh", "-euc", &script]);
    command.env("PGFRESH_PASSWORD", &password).env("WANTED", &password).env("NAME", name);
    command.env("PGFRESH", ground::program());
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines, ["postgres", name, name, "released"], "{outcome}");
}

/// Setup that writes pgfresh's CPU time for another user's 1500 connections, in ticks of 10 ms, and
/// pgfresh's number of threads.
const STRANGER: &str = r#"
[template]
inputs = ["pgfresh.toml"]
setup = '''
spent() { awk '{print $14 + $15}' /proc/$PPID/stat; }
threads() { ls /proc/$PPID/task | wc -l; }
before=$(spent)
setpriv --reuid 65532 --regid 65532 --clear-groups bash -c '
    for _ in {1..1500}; do exec 3<>/dev/tcp/127.0.0.1/'$PGPORT' || exit 1; done'
echo $(($(spent) - before)) $(threads) >cost
psql -XAtqc 'SELECT 1' >answer
'''
"#;

#[test]
fn other_users_connections_cost_little() {
    if !as_root("be another user") {
        return;
    }
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", STRANGER);
    let outcome = scene.run(["run", "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let read = |name: &str| std::fs::read_to_string(scene.directory.join(name)).unwrap();
    let cost: Vec<u32> = read("cost").split_whitespace().map(|number| number.parse().unwrap()).collect();
    // If pgfresh used a thread and scanned all sockets for each connection, this would take about ten seconds.
    assert!(cost[0] < 100, "{} ms for 1500 connections", cost[0] * 10);
    assert!(cost[1] < 8, "{} threads", cost[1]);
    assert_eq!(read("answer"), "1\n");
}

/// A client whose machine has vanished is silent. The kernel probes the connection, as it does for PostgreSQL itself.
#[test]
fn the_kernel_looks_whether_clients_are_still_there() {
    let gateway = Gateway::start(15, "", &[]);
    let session = gateway.connect("db", "").unwrap();
    // The connection is established. Timer 02 is the keepalive timer, if no data are unacknowledged.
    wait_until("the kernel's timer", || {
        gateway.connections().iter().any(|fields| fields[3] == "01" && fields[5].starts_with("02:"))
    });
    drop(session);
}
