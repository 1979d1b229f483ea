//! Clients of several templates in one server: each gets its turn, however busy the other templates are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::gateway::Gateway;
use crate::common::serve::Serve;
use crate::common::{Scene, User, postgres};

/// Starts one server with these templates, of which the first is the default.
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

/// Leases a template for `stays`; returns the time until the client had its first answer.
fn lease(gateway: &Gateway, template: &str, name: &str, stays: Duration) -> Duration {
    let begun = Instant::now();
    let mut session = gateway.connect(name, &format!("-cpgfresh.template={template}")).unwrap();
    session.value(&format!("SELECT count(*) FROM of_{template}")).unwrap();
    let waited = begun.elapsed();
    thread::sleep(stays);
    session.close();
    waited
}

/// Keeps `clients` clients leasing each busy template. Meanwhile three clients, one after the other, lease the template `other`.
/// Returns the time that each of these three waited.
fn beside_busy_ones(
    gateway: &Gateway,
    busy: &[&str],
    clients: usize,
    stays: Duration,
    other: &str,
) -> Vec<Duration> {
    let (ended, served, begun) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    let is_busy = || !ended.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(30);
    thread::scope(|scope| {
        let (is_busy, served) = (&is_busy, &served);
        for template in busy {
            for client in 0..clients {
                scope.spawn(move || {
                    for number in 0.. {
                        if !is_busy() {
                            return;
                        }
                        lease(gateway, template, &format!("{template}_{client}_{number}"), stays);
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        thread::sleep(Duration::from_secs(2));
        let waits = (0..3).map(|number| lease(gateway, other, &format!("{other}_{number}"), stays)).collect();
        ended.store(true, Ordering::Relaxed);
        println!("{} served in {:?} beside {waits:?}", served.load(Ordering::Relaxed), begun.elapsed());
        waits
    })
}

/// The space is enough for four databases, and six clients of one template always want one.
#[test]
fn a_busy_template_leaves_room_to_another() {
    let gateway = gateway_with(&["busy", "other"], &["--space", "64MB"]);
    let waits = beside_busy_ones(&gateway, &["busy"], 6, Duration::from_millis(20), "other");
    assert!(waits.iter().all(|wait| *wait < Duration::from_secs(10)), "{waits:?}");
}

/// Copies for the busy templates wait until their clients have gone. A copy for the other template does not wait for those.
#[test]
fn busy_templates_delay_no_other_template() {
    let gateway = gateway_with(&["busy", "hot", "other"], &[]);
    let waits = beside_busy_ones(&gateway, &["busy", "hot"], 16, Duration::ZERO, "other");
    assert!(waits.iter().all(|wait| *wait < Duration::from_secs(10)), "{waits:?}");
}
