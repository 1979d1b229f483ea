//! `pgfresh explain`: prints the plans that statements would have in production.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use ::report::{Quantity, Unit};
use plans::{
    Analysis, Applied, BoundStatement, ExplainError, Limits, PlanFinding, PlanMode, Refusal, Scratch,
    Statistics, SuiteStatement,
};
use serde_json::{Value, json};
use storage::human_bytes;

use crate::bounded_file;
use crate::cli::Explain;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print_line;
use crate::production_statistics;

/// Maximum size of a statement file in bytes.
const MOST_TEXT: u64 = 16_000_000;

pub(crate) fn execute(context: &Context, arguments: &Explain) -> Result<ExitCode, Failure> {
    let statements = statements(&arguments.source)?;
    let statistics = production_statistics::read(context.settings()?, arguments.statistics.as_deref())?;
    let provisioner = context.provisioner()?;
    provisioning::prepare(context, provisioner)?;
    let (mut scratch, applied) = Scratch::start(provisioner, &statistics)?;
    if !arguments.json && !context.verbosity.is_quiet() {
        report(&applied, context);
    }
    if !context.verbosity.is_quiet() {
        let major = provisioner.installation.version().major;
        let warnings = production_statistics::other_major(&statistics, major);
        let generic = arguments.generic.then(|| without_parameters(&statements)).flatten();
        warnings.into_iter().chain(generic).for_each(|warning| notice!("pgfresh: {warning}"));
    }
    let (mut explained, mut planned) = (Vec::new(), Vec::new());
    for (index, text) in statements.iter().enumerate() {
        let result = explain(&mut scratch, text);
        if result.is_ok() {
            planned.push(text);
        }
        if arguments.json {
            explained.push(to_json(&mut scratch, text, result));
            continue;
        }
        match result {
            Ok(plan) if index > 0 => print_line!("\n{plan}"),
            Ok(plan) => print_line!("{plan}"),
            Err(refusal) => {
                let number = (statements.len() > 1).then_some(index + 1);
                // One failed statement doesn't keep the others from being explained.
                failure(text, &refusal, number).report(1);
            }
        }
    }
    let analysis = plans::analyze(&mut scratch, &records(&planned), &Limits::default());
    scratch.stop()?;
    if arguments.json {
        let suggestions: Vec<&str> = analysis.suggestions.iter().map(|index| index.sql.as_str()).collect();
        let findings: Vec<Value> =
            analysis.findings.iter().map(|found| to_json_with(found, &analysis)).collect();
        print_line!(
            "{}",
            json!({
                "statements": explained, "findings": findings, "suggestions": suggestions,
                "statistics": summary(&statistics, &applied),
            })
        );
    } else if !context.verbosity.is_quiet() {
        for missing in &analysis.unexplained {
            notice!("pgfresh: did not look for findings: {}", missing.cause);
        }
        analysis
            .findings
            .iter()
            .for_each(|found| notice!("{}", describe(found, &analysis, statements.len() > 1)));
    }
    Ok(if planned.len() < statements.len() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the statements. If `source` is the name of a file, reads that file. Otherwise `source` itself is SQL.
fn statements(source: &str) -> Result<Vec<String>, Failure> {
    let path = Path::new(source);
    let text = if source == "-" {
        read(io::stdin()).map_err(|error| Failure::new(format!("could not read standard input: {error}")))?
    } else if path.is_file() || !source.contains(char::is_whitespace) {
        let unreadable = |error: io::Error| {
            let failure = Failure::new(format!("could not read \"{source}\": {error}"));
            failure.hint("Name a file, or write a whole statement in quotes.".to_owned())
        };
        fs::File::open(path).and_then(read).map_err(unreadable)?
    } else {
        source.to_owned()
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let statements: Vec<String> = pgwire::split_statements(text).into_iter().map(str::to_owned).collect();
    if statements.is_empty() {
        Err(Failure::new("the input contains no SQL statement"))
    } else {
        Ok(statements)
    }
}

fn read(source: impl Read) -> io::Result<String> {
    bounded_file::text(bounded_file::read_from(source, MOST_TEXT)?)
}

/// Explains one statement. The plan is custom, or generic if the statement has parameters.
fn explain(scratch: &mut Scratch, text: &str) -> Result<String, Refusal> {
    let statement = BoundStatement { text: text.to_owned(), ..BoundStatement::default() };
    scratch.explain_text(&statement, mode(text))
}

/// Returns a warning if `--generic` has no effect on some statements.
fn without_parameters(statements: &[String]) -> Option<String> {
    let count = statements.iter().filter(|text| !plans::has_parameters(text)).count();
    let all = statements.len();
    (count > 0).then(|| {
        format!(
            "--generic changes nothing for {count} of {all} statements, which have no parameters such as $1"
        )
    })
}

fn mode(text: &str) -> PlanMode {
    if plans::has_parameters(text) { PlanMode::Generic } else { PlanMode::Custom }
}

fn to_json(scratch: &mut Scratch, text: &str, result: Result<String, Refusal>) -> Value {
    let mode = mode(text);
    let statement = BoundStatement { text: text.to_owned(), ..BoundStatement::default() };
    let kind = if mode == PlanMode::Generic { "generic" } else { "custom" };
    match result.and_then(|plan| Ok((plan, scratch.explain_json(&statement, mode)?))) {
        Ok((text_plan, plan)) => {
            json!({ "statement": text, "mode": kind, "text": text_plan, "plan": plan })
        }
        Err(refusal) => {
            json!({ "statement": text, "mode": kind, "error": failure(text, &refusal, None).to_response().error })
        }
    }
}

fn records(statements: &[&String]) -> Vec<SuiteStatement> {
    let record = |text: &&String| SuiteStatement {
        statement: BoundStatement { text: (*text).clone(), ..BoundStatement::default() },
        normalized: (*text).clone(),
        ..SuiteStatement::default()
    };
    statements.iter().map(record).collect()
}

/// Returns a finding together with the statement it belongs to.
fn to_json_with(found: &PlanFinding, analysis: &Analysis) -> Value {
    let mut object = found.to_json();
    object["statement"] = json!(analysis.statements[found.statement].normalized);
    object
}

/// Describes a finding. Names the statement only if there are several.
fn describe(found: &PlanFinding, analysis: &Analysis, names_statement: bool) -> String {
    let statement = &analysis.statements[found.statement].normalized;
    let of = if names_statement { format!(" in {}", ::report::cut(statement, 60)) } else { String::new() };
    let costs = match found.cost_after {
        Some(after) => format!(" (cost {:.0} → {after:.0})", found.cost),
        None => String::new(),
    };
    let seconds = |seconds| Quantity::new(seconds, Unit::Seconds);
    let time = match found.seconds {
        Some((from, to)) => format!(" About {} to {} a call.", seconds(from), seconds(to)),
        None => String::new(),
    };
    let (title, evidence) = (found.kind.title(), &found.evidence);
    format!("pgfresh: {title}{of}\nDETAIL:  {evidence}{time}\nHINT:  {}{costs}", found.change)
}

fn summary(statistics: &Statistics, applied: &Applied) -> Value {
    let left_out: Vec<_> = applied
        .left_out
        .iter()
        .map(|left| json!({ "object": left.object, "reason": left.reason.to_string() }))
        .collect();
    json!({
        "taken": statistics.taken, "tables": applied.tables, "indexes": applied.indexes, "columns": applied.columns,
        "extended": applied.extended, "bytes": applied.bytes, "left_out": left_out,
    })
}

/// Prints which statistics couldn't be applied to the copy.
fn report(applied: &Applied, context: &Context) {
    context.verbosity.detail(|| {
        format!(
            "statistics of {} tables with {} columns, {} indexes, {}",
            applied.tables,
            applied.columns,
            applied.indexes,
            human_bytes(applied.bytes)
        )
    });
    for line in applied.summary() {
        notice!("pgfresh: {line}");
    }
}

/// Describes why a statement has no plan. Includes the error's position in `text`.
fn failure(text: &str, refusal: &Refusal, number: Option<usize>) -> Failure {
    let message = match &refusal.error {
        ExplainError::Refused { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let place = refusal.position.and_then(|position| place(text, position));
    let detail: Vec<_> = refusal.detail.clone().into_iter().chain(place).collect();
    let failure = Failure::new(message)
        .detail((!detail.is_empty()).then(|| detail.join("\n")))
        .hint(refusal.hint.clone());
    match number {
        Some(number) => failure.after(&format!("statement {number}")),
        None => failure,
    }
}

/// Returns the line of `text` that contains an error, with a mark below the error, as in psql. `position` counts
/// characters from 1.
fn place(text: &str, position: usize) -> Option<String> {
    let before: String = text.chars().take(position.checked_sub(1)?).collect();
    let number = before.matches('\n').count();
    let line = text.lines().nth(number)?;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let label = format!("LINE {}: ", number + 1);
    Some(format!("{label}{line}\n{}^", " ".repeat(label.len() + column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_error_is_marked() {
        assert_eq!(place("SELECT é,\n  x", 13).unwrap(), "LINE 2:   x\n          ^");
        assert_eq!(place("SELECT 1", 0), None);
    }
}
