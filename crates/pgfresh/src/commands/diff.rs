//! `pgfresh diff`: shows how a database differs from its template.

use std::io;
use std::process::ExitCode;

use contract::{DatabaseDiff, DiffResponse};
use diff::{format_diff, summarize};
use serde_json::Value;
use server::percent_encode;
use server::printable;
use ureq::http::Method;

use crate::background;
use crate::cli::Diff;
use crate::context::Context;
use crate::control::{Control, path_of};
use crate::failure::Failure;
use crate::output::{print, print_line};

/// Output width in columns if standard output isn't a terminal.
const USUAL_WIDTH: usize = 80;

pub(crate) fn execute(context: &Context, arguments: &Diff) -> Result<ExitCode, Failure> {
    let (control, name) = find(context, &arguments.name)?;
    let mut query = format!("/diff?rows={}", arguments.rows);
    for (key, value) in [("table", &arguments.table), ("template", &arguments.of)] {
        if let Some(value) = value {
            query += &format!("&{key}={}", percent_encode(value));
        }
    }
    let mut answer = control.call(&Method::GET, &path_of(&name, &query), &Value::Null)?;
    answer["url"] = control.address(&name).url().into();
    if arguments.json {
        print_line!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let DiffResponse { test, template, diff, .. } = serde_json::from_value(answer).map_err(|error| {
        Failure::new(format!("cannot read the server's response about database \"{name}\": {error}"))
    })?;
    show(&diff, &name, &template, &test.unwrap_or_default(), arguments.table.as_deref());
    Ok(ExitCode::SUCCESS)
}

/// Finds the server that has a leased or kept database named `wanted`. Otherwise looks for the kept database of a
/// failed test with that name.
fn find(context: &Context, wanted: &str) -> Result<(Control, String), Failure> {
    let controls = if let Some(control) = Control::of_this_run()? {
        vec![control]
    } else {
        let found = background::running(context)?;
        found.into_iter().map(|found| found.control).collect()
    };
    if controls.is_empty() {
        return Err(background::none_runs());
    }
    let (mut of_test, mut holder, name) = (Vec::new(), None, lease::cut(wanted));
    for control in controls {
        let status = control.call(&Method::GET, "/v1/status", &Value::Null)?;
        let all = |key: &str| status[key].as_array().cloned().unwrap_or_default();
        let databases: Vec<_> = all("leases").into_iter().chain(all("kept")).collect();
        if databases.iter().any(|database| database["database"] == name) {
            return Ok((control, name.to_owned()));
        }
        let theirs = databases.iter().filter(|database| database["test"] == wanted);
        let names: Vec<_> = theirs.filter_map(|database| database["database"].as_str()).collect();
        if !names.is_empty() {
            of_test.extend(names.into_iter().map(ToOwned::to_owned));
            holder = Some(control);
        }
    }
    match (holder, &of_test[..]) {
        (Some(control), [name]) => Ok((control, name.clone())),
        (Some(_), names) => {
            let known: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
            let failure =
                Failure::new(format!("{} databases of test \"{}\" are kept", names.len(), printable(wanted)));
            Err(failure.hint(format!("Name one of them: {}.", known.join(", "))))
        }
        (None, _) => Err(Failure::new(format!("no database \"{}\" is leased or kept", printable(wanted)))
            .hint("\"pgfresh status\" lists those that are.".to_owned())),
    }
}

fn show(diff: &DatabaseDiff, name: &str, template: &str, test: &str, table: Option<&str>) {
    if !test.is_empty() && test != name {
        print_line!("{}", printable(test));
    }
    let whole = table.map_or_else(|| name.to_owned(), |table| format!("table \"{table}\" of {name}"));
    match (diff.is_empty(), diff.not_compared.is_empty()) {
        (false, _) if table.is_some() => print_line!("{whole} differs from template \"{template}\"\n"),
        (false, _) => print_line!("{whole} differs from template \"{template}\": {}\n", summarize(diff)),
        (true, true) => return print_line!("{whole} does not differ from template \"{template}\""),
        (true, false) => {
            print_line!("{whole} does not differ from template \"{template}\" in what could be compared\n");
        }
    }
    print(format_diff(diff, sys::terminal_width(io::stderr()).unwrap_or(USUAL_WIDTH)));
    if diff.tables_left_out.tables > 0 {
        print_line!("HINT:  \"pgfresh diff {name} --table TABLE\" shows a single table.");
    }
}
