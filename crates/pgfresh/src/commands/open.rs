//! `pgfresh open`: opens the live page of the running server in a browser.

use std::process::ExitCode;

use crate::browser;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::print_line;
use crate::target::Servers;

pub(crate) fn execute(context: &Context) -> Result<ExitCode, Failure> {
    let control = Servers::find(context)?.control;
    let address = control.address("");
    // A browser's arguments are visible to other users, so its URL must not contain a secret.
    if browser::open(&control.invite(&address.http_url())) {
        print_line!("opened {}", address.http_url());
    } else {
        print_line!("{}", address.page_url());
    }
    Ok(ExitCode::SUCCESS)
}
