//! Starts and stops services and keeps the user informed.

use storage::{Method, human_bytes};
use template::{Provisioner, Started};

use crate::context::Context;
use crate::failure::Failure;
use crate::notice::notice;
use crate::progress;
use crate::service::{ServeOptions, Service};

/// Removes the leftovers of crashed runs.
pub(crate) fn sweep(context: &Context, provisioner: &Provisioner) {
    let (removed, failures) = provisioner.sweep();
    for path in removed {
        context.verbosity.detail(|| format!("removed \"{}\", whose owner is gone", path.display()));
    }
    for failure in failures {
        context.verbosity.detail(|| Failure::from(failure).to_string().trim_end().replace("pgfresh: ", ""));
    }
}

/// Removes the leftovers of crashed runs, then starts a server.
fn start(context: &Context, provisioner: &Provisioner) -> Result<Started, Failure> {
    sweep(context, provisioner);
    let started = provisioner.start(&progress::announce(context.verbosity))?;
    report_start(context, provisioner, &started);
    Ok(started)
}

/// Prints details of the started server and how long the startup took.
pub(crate) fn report_start(context: &Context, provisioner: &Provisioner, started: &Started) {
    let installation = &provisioner.installation;
    context
        .verbosity
        .detail(|| format!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display()));
    context.verbosity.detail(|| describe(started));
    name_refusals(context);
}

/// Prints the system calls and files that the system has refused since the last call of this function.
fn name_refusals(context: &Context) {
    for (call, error) in sys::take_refusals() {
        context.verbosity.detail(|| format!("works without {call}, which the system refuses: {error}"));
    }
}

fn describe(started: &Started) -> String {
    let phases = started.server.phases();
    let ms = |duration: std::time::Duration| format!("{:.1} ms", duration.as_secs_f64() * 1000.0);
    let copied = started.server.copied().map_or_else(String::new, |copied| match copied.method {
        Method::Reflink => format!("cloned {} files, ", copied.files),
        Method::Copy => format!("copied {} files with {}, ", copied.files, human_bytes(copied.bytes)),
    });
    format!(
        "{}\npgfresh: {copied}ready after {} (look-up {}, copy {}, boot {}, rest of the copy {}, first answer {})",
        started.place.why(),
        ms(started.look_up + phases.total()),
        ms(started.look_up),
        ms(phases.copy),
        ms(phases.boot),
        ms(phases.rest),
        ms(phases.ready),
    )
}

/// Starts a server and opens its gateway.
pub(crate) fn serve(
    context: &Context,
    provisioner: &Provisioner,
    serve_options: ServeOptions,
) -> Result<Service, Failure> {
    let service = Service::open(provisioner, start(context, provisioner)?, serve_options)?;
    if !service.leases.can_reset() && !context.verbosity.is_quiet() {
        notice!(
            "pgfresh: databases are copied instead of reset: the write-ahead log of PostgreSQL {} has an unknown format",
            provisioner.installation.version().major
        );
    }
    context.verbosity.detail(|| format!("live page at {}", service.local_address().page_url()));
    Ok(service)
}

/// Stops a service and removes its files.
pub(crate) fn stop(context: &Context, service: Service) -> Result<(), Failure> {
    warn(&service);
    let (stopped, removed) = service.close().stop()?;
    context.verbosity.detail(|| {
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        format!("stopped in {:.1} ms, removed in {:.1} ms", ms(stopped), ms(removed))
    });
    // pgfresh makes some system calls only after the start, so print their refusals now.
    name_refusals(context);
    Ok(())
}

/// Prints warnings about tests that affected each other and about changes that pgfresh couldn't undo.
pub(crate) fn warn(service: &Service) {
    let status = service.leases.final_status();
    for leak in status.leaks {
        notice!("pgfresh: {}, which all databases of a server share, were changed", leak.what);
        if !leak.suspects.is_empty() {
            notice!("DETAIL:  Leased at the time: {}.", leak.suspects.join(", "));
        }
    }
    for difference in status.differences {
        notice!(
            "pgfresh: database \"{}\" was not fresh after recycling: \"{}\" differs from its template\n\
             DETAIL:  It was dropped; this is a bug in pgfresh.",
            difference.database,
            difference.relation
        );
    }
}
