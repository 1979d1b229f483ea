//! Prints the report of a check and writes its files.

use std::io;

use migrations::MigrationReport;

use crate::cli::CheckMigrations;
use crate::failure::Failure;
use crate::notice::print_notice;
use crate::output::{print, print_line};
use crate::report_file::{self, Format};

/// Prints the report on standard output, annotations for GitHub on standard error, and writes the files.
pub(super) fn publish(report: &MigrationReport, arguments: &CheckMigrations) -> Result<(), Failure> {
    let document = report.report();
    if arguments.json {
        print_line!("{}", document.to_json());
    } else {
        print(report.to_text(sys::terminal_width(io::stdout()).unwrap_or(usize::MAX)));
    }
    if report_file::is_in_github() {
        print_notice(report.to_annotations());
    }
    for file in &arguments.report {
        match file.format {
            Format::Markdown => report_file::write(&file.path, &report.to_markdown())?,
            Format::Text => report_file::write(&file.path, &report.to_text(usize::MAX))?,
            _ => file.write(&document, &|| document.to_html(""))?,
        }
    }
    report_file::append_to_step_summary(&report.to_markdown())
}
