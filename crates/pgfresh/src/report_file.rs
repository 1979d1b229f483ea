//! Writes reports to files and standard output, and their summaries to standard error.

use std::env;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use report::Report;

use crate::failure::Failure;
use crate::new_file;
use crate::notice::{notice, print_notice};
use crate::output;

/// Variable with the path of a Markdown file. GitHub shows this file on the job's summary page. Source: GitHub's
/// manual, "Workflow commands".
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// Variable that GitHub sets in each job. Source: GitHub's manual, "Default environment variables".
const IN_GITHUB: &str = "GITHUB_ACTIONS";

/// A file to write a report to. Its extension determines the format.
#[derive(Debug, Clone)]
pub(crate) struct ReportFile {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Json,
    Markdown,
    Csv,
    Text,
    Junit,
    Sarif,
}

impl Format {
    /// Renders the report in the file's format. Calls `page` to render HTML.
    pub(crate) fn render(self, report: &Report, page: &dyn Fn() -> String) -> String {
        match self {
            Self::Html => page(),
            Self::Json => format!("{}\n", report.to_json()),
            Self::Markdown => report.to_markdown(),
            Self::Csv => report.to_csv(),
            Self::Text => report.to_string(),
            Self::Junit => report.to_junit(),
            Self::Sarif => report.to_sarif(),
        }
    }
}

/// Error for a file name with an unsupported extension.
#[derive(Debug, thiserror::Error)]
#[error("its name must end with .html, .json, .md, {last}")]
pub(crate) struct UnknownEnding {
    /// The allowed extensions that end the error's list.
    last: &'static str,
}

impl ReportFile {
    /// Parses a path and derives the format from its extension.
    pub(crate) fn named(text: &str) -> Result<Self, UnknownEnding> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("html") => Format::Html,
            Some("json") => Format::Json,
            Some("md") => Format::Markdown,
            Some("csv") => Format::Csv,
            Some("txt") => Format::Text,
            _ => return Err(UnknownEnding { last: ".csv or .txt" }),
        };
        Ok(Self { path, format })
    }

    /// Like [`Self::named`], but also accepts JUnit XML, for test reports.
    pub(crate) fn of_tests(text: &str) -> Result<Self, UnknownEnding> {
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("xml") => Ok(Self { path, format: Format::Junit }),
            _ => Self::named(text).map_err(|_| UnknownEnding { last: ".csv, .txt or .xml" }),
        }
    }

    /// Like [`Self::of_tests`], but also accepts SARIF, for code scanning.
    pub(crate) fn of_migrations(text: &str) -> Result<Self, UnknownEnding> {
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("sarif") => Ok(Self { path, format: Format::Sarif }),
            _ => Self::of_tests(text).map_err(|_| UnknownEnding { last: ".csv, .txt, .xml or .sarif" }),
        }
    }

    /// Writes the report to the file.
    pub(crate) fn write(&self, report: &Report, page: &dyn Fn() -> String) -> Result<(), Failure> {
        write(&self.path, &self.format.render(report, page))
    }
}

/// Writes each of `files` with `write`, continuing after errors. Returns the first error.
pub(crate) fn write_each(
    files: &[ReportFile],
    write: impl Fn(&ReportFile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    files.iter().map(write).fold(Ok(()), Result::and)
}

/// Prints `text` on standard output. Callers must write their files first, because pgfresh exits if the reader has
/// closed the pipe.
///
/// # Errors
/// Returns the error in `written` if there is one. Otherwise returns the error of writing to standard output, if any.
pub(crate) fn print_after_files(written: Result<(), Failure>, text: impl Display) -> Result<(), Failure> {
    let printed = output::try_print(text);
    written?;
    match printed {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => output::end(&error),
        printed => printed.map_err(|error| output::could_not_print(&error)),
    }
}

/// Writes a file atomically, so that other programs never read incomplete contents.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    // If the path is a symbolic link, keep the link and replace its target.
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let written = if path.is_file() || !path.exists() {
        new_file::replace(&path, text)
    } else {
        // The path is a device or a pipe, which can't be replaced, so write to it directly.
        fs::write(&path, text)
    };
    written.map_err(|error| could_not_write(file, &error))
}

/// Checks that all `files` are writable, because an error after an hour of measuring would come too late.
pub(crate) fn expect_writable(files: &[ReportFile]) -> Result<(), Failure> {
    files.iter().try_for_each(|file| expect_writable_path(&file.path))
}

/// Checks that a file is writable, without changing it.
pub(crate) fn expect_writable_path(path: &Path) -> Result<(), Failure> {
    // An existing dangling link belongs to the user, so don't remove it.
    let is_new = path.symlink_metadata().is_err();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let result = opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) });
    result.map_err(|error| could_not_write(path, &error))
}

/// Prints the report in the given formats.
pub(crate) fn print(report: &Report, formats: &[Format]) {
    for format in formats {
        match format {
            Format::Text => output::print(for_output(false, report, |columns| report.to_text(columns))),
            _ => output::print(format.render(report, &|| report.to_html(""))),
        }
    }
}

/// Formats a report as JSON or as text. Calls `text` with the terminal's width in columns. Elsewhere, tables are as
/// wide as their contents.
pub(crate) fn for_output(json: bool, report: &Report, text: impl Fn(usize) -> String) -> String {
    if json {
        return format!("{}\n", report.to_json());
    }
    text(sys::terminal_width(io::stdout()).unwrap_or(usize::MAX))
}

/// Prints the summary on standard error and writes the report to its files. `summary` gets the maximum number of
/// columns in a line, and `page` returns the HTML.
pub(crate) fn publish(
    quiet: bool,
    summary: &dyn Fn(usize) -> String,
    report: &Report,
    page: &dyn Fn() -> String,
    files: &[ReportFile],
) -> Result<(), Failure> {
    if !quiet {
        let columns = sys::terminal_width(io::stderr()).unwrap_or(usize::MAX);
        print_notice(format_args!("\n{}", summary(columns)));
    }
    let written = write_each(files, |file| file.write(report, page));
    append_to_step_summary(&report.to_markdown());
    written
}

/// Returns true in a GitHub Actions job. GitHub reads annotations from the job's output.
pub(crate) fn is_in_github() -> bool {
    env::var_os(IN_GITHUB).is_some_and(|value| value == "true")
}

/// Appends Markdown to the job's summary on GitHub. Does nothing elsewhere. Prints a warning if that fails: the user
/// named no file, so an error would only hide the result of the command.
pub(crate) fn append_to_step_summary(markdown: &str) {
    let Some(path) = env::var_os(STEP_SUMMARY).filter(|path| !path.is_empty()) else { return };
    let file = OpenOptions::new().append(true).create(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(markdown.as_bytes())) {
        notice!(
            "pgfresh: the report is not in the job's summary: could not write {STEP_SUMMARY} (\"{}\"): {error}",
            path.display()
        );
    }
}

pub(crate) fn could_not_write(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NotFound => "Create its directory first, or name another file.",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room on its disk, or name another file.",
        _ => "Name a file that you may write to.",
    };
    Failure::new(format!("could not write \"{}\": {error}", path.display())).hint(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn report_follows_link_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link.md"), folder.path().join("target"));
        symlink(&target, &link).unwrap();
        let file = ReportFile::named(link.to_str().unwrap()).unwrap();
        expect_writable(std::slice::from_ref(&file)).unwrap();
        assert!(link.is_symlink());
        file.write(&Report::new("Times"), &String::new).unwrap();
        assert!(link.is_symlink());
        assert!(fs::read_to_string(&target).unwrap().starts_with("# Times"));
    }
}
