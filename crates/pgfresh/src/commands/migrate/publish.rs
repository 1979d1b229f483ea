//! Prints a check's report and writes its files.

use migrations::MigrationReport;

use crate::cli::CheckMigrations;
use crate::failure::Failure;
use crate::notice::print_notice;
use crate::report_file::{self, Format};

/// Writes the files, then prints GitHub annotations on standard error and the report on standard output.
pub(super) fn publish(report: &MigrationReport, arguments: &CheckMigrations) -> Result<(), Failure> {
    let document = report.report();
    let written = report_file::write_each(&arguments.report, |file| match file.format {
        Format::Markdown => report_file::write(&file.path, &report.to_markdown()),
        Format::Text => report_file::write(&file.path, &report.to_text(usize::MAX)),
        _ => file.write(&document, &|| document.to_html("")),
    });
    report_file::append_to_step_summary(&report.to_markdown());
    if report_file::is_in_github() {
        print_notice(report.to_annotations());
    }
    let text = report_file::for_output(arguments.json, &document, |columns| report.to_text(columns));
    report_file::print_after_files(written, text)
}
