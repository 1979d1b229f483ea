//! Tests clients of several templates on one server: each client gets its turn, however busy the other templates are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::gateway::Gateway;
use crate::common::serve::Serve;
use crate::common::{Scene, User, postgres, wait_until};

/// Starts one server with `templates`. The first template is the default.
fn gateway_with(templates: &[&str], options: &[&str]) -> Gateway {
    let scene = Scene::new(User::Ourselves);
    let table = |name: &&str| format!("[template.{name}]\nsql = \"{name}.sql\"\n");
    scene.write("pgfresh.toml", &templates.iter().map(table).collect::<String>());
    for name in templates {
        scene.write(&format!("{name}.sql"), &format!("CREATE TABLE of_{name} (v text)"));
    }
    let (postgres, names) = (postgres(15), templates.join(","));
    let words = [&["--postgres", &*postgres, "--template", &*names, "--linger", "0"], options].concat();
    Gateway { serve: Serve::at(scene, words), major: 15 }
}

/// Leases a database from `template` for the duration `stays`.
fn lease(gateway: &Gateway, template: &str, name: &str, stays: Duration) {
    let mut session = gateway.connect(name, &format!("-cpgfresh.template={template}")).unwrap();
    session.value(&format!("SELECT count(*) FROM of_{template}")).unwrap();
    thread::sleep(stays);
    session.close();
}

/// Number of busy leases that can start while a client waits for another template. Without fairness, the client
/// would wait for all of them.
const STARVED: usize = 2000;

/// Keeps `clients` clients leasing each busy template. Meanwhile, three clients lease the template `other`
/// consecutively. Fails if one of them waits while [`STARVED`] busy leases start.
fn assert_served_beside(gateway: &Gateway, busy: &[&str], clients: usize, stays: Duration, other: &str) {
    let (served, last) = (AtomicUsize::new(0), AtomicUsize::new(STARVED));
    let count = || served.load(Ordering::SeqCst);
    thread::scope(|scope| {
        let (served, last, count) = (&served, &last, &count);
        for template in busy {
            for client in 0..clients {
                scope.spawn(move || {
                    let mut number = 0;
                    // Busy clients stop at the last lease, so that even a starved client's wait ends.
                    while count() < last.load(Ordering::SeqCst) {
                        lease(gateway, template, &format!("{template}_{client}_{number}"), stays);
                        served.fetch_add(1, Ordering::SeqCst);
                        number += 1;
                    }
                });
            }
        }
        wait_until("a lease of each busy client", || count() >= busy.len() * clients);
        let meanwhile: Vec<_> = (0..3)
            .map(|number| {
                let before = count();
                last.store(before + STARVED, Ordering::SeqCst);
                lease(gateway, other, &format!("{other}_{number}"), stays);
                count() - before
            })
            .collect();
        last.store(0, Ordering::SeqCst);
        println!("busy leases while {other} waited: {meanwhile:?}");
        assert!(meanwhile.iter().all(|leases| *leases < STARVED), "{meanwhile:?}");
    });
}

/// There is space for four databases, and six clients of the same template always want one.
#[test]
fn a_busy_template_leaves_room_to_another() {
    let gateway = gateway_with(&["busy", "other"], &["--space", "64MB"]);
    assert_served_beside(&gateway, &["busy"], 6, Duration::from_millis(20), "other");
}

/// Copies for the busy templates wait until their clients have gone. A copy for the other template doesn't
/// wait for those clients.
#[test]
fn busy_templates_delay_no_other_template() {
    let gateway = gateway_with(&["busy", "hot", "other"], &[]);
    assert_served_beside(&gateway, &["busy", "hot"], 16, Duration::ZERO, "other");
}
