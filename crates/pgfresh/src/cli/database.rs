//! Defines the arguments of the commands that use one database: `psql`, `url`, `reset`, `release`, `snapshot` and
//! `diff`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::USAGE;
use super::options::{InstallationOptions, Options, ProjectOptions};
use super::values::{name, number};
use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh psql\n  pgfresh psql scratch -- -c 'SELECT version()'")]
pub(crate) struct Psql {
    /// Database; created from the template if it does not exist [default: a new database, dropped afterwards]
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
    /// Arguments for psql
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: DATABASE_URL=$(pgfresh url scratch) ./server\n\n\
    Within \"pgfresh run\" the database is on that run's server. Elsewhere it is on the background server of the \
    project, which starts when it is needed and stops 5 minutes after its last client. The database lasts \
    until the server stops or until \"pgfresh release\".")]
pub(crate) struct Url {
    /// Name of the database [default: a new name]
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
    /// Template to copy [default: the server's own template]
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh reset scratch --close")]
pub(crate) struct Reset {
    /// Database
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Close the database's connections first; otherwise, open connections are an error
    #[arg(long)]
    pub(crate) close: bool,
    /// Name of the test that has ended, for profiles
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    #[command(flatten)]
    pub(super) options: ProjectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh release scratch")]
pub(crate) struct Release {
    /// Database
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Report that the test failed: a server with --keep-failed keeps the database
    #[arg(long)]
    pub(crate) failed: bool,
    /// Name of the test that has ended, for profiles and kept databases
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    #[command(flatten)]
    pub(super) options: ProjectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh snapshot scratch with_orders\n  \
    pgfresh snapshot scratch with_orders --save db/with_orders.dump")]
pub(crate) struct Snapshot {
    /// Database; it must have no open connections
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Name of the new template; the word "as" may precede it
    template: String,
    /// Name of the new template, if "as" precedes it
    #[arg(hide = true)]
    after_as: Option<String>,
    /// Also write the template to a file, for "dump" in pgfresh.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: InstallationOptions,
}

impl Snapshot {
    /// Returns the new template's name. Accepts `NAME TEMPLATE` and `NAME as TEMPLATE`.
    ///
    /// # Errors
    /// Returns an error if no template follows "as", or if a word other than "as" comes before the template.
    pub(crate) fn template(&self) -> Result<&str, Failure> {
        let message = match (self.template.eq_ignore_ascii_case("as"), &self.after_as) {
            (false, None) => return Ok(&self.template),
            (true, Some(template)) => return Ok(template),
            (true, None) => "the name of the template is missing".to_owned(),
            (false, Some(word)) => format!("unexpected argument '{word}' found"),
        };
        let hint = format!("Write \"pgfresh snapshot {} TEMPLATE\".", self.name);
        Err(Failure::new(message).hint(hint).exit_with(USAGE))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh diff tests_test_orders_py_test_total_failed_7\n  \
    pgfresh diff scratch --table orders --rows 100\n\n\
    It compares the database with a fresh copy of the template, changes nothing, and does not see \
    uncommitted changes. \"+\" is inserted or created, \"~\" updated, \"-\" deleted. The exit code is 0, whether or not there are differences.")]
pub(crate) struct Diff {
    /// Leased database, kept database of a failed test, or name of that test
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Compare only this table (TABLE or SCHEMA.TABLE)
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<String>,
    /// Maximum number of rows to show for each table
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(0..=1000))]
    pub(crate) rows: u32,
    /// Template to compare with [default: the template that the database was copied from]
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(super) options: ProjectOptions,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use crate::failure::Failure;

    /// Parses the arguments of `pgfresh snapshot`. Returns the name of the new template.
    fn template(line: &str) -> Result<String, Failure> {
        let arguments = ["pgfresh", "snapshot", "scratch"].into_iter().chain(line.split_whitespace());
        let Command::Snapshot(snapshot) = Cli::try_parse_from(arguments).unwrap().command else {
            panic!("the command is snapshot")
        };
        snapshot.template().map(ToOwned::to_owned)
    }

    #[test]
    fn snapshot_accepts_as_before_template() {
        for line in ["with_orders", "as with_orders", "AS with_orders --save x.dump"] {
            assert_eq!(template(line).unwrap(), "with_orders", "{line}");
        }
        for (line, message) in [
            ("as", "the name of the template is missing"),
            ("into with_orders", "unexpected argument 'with_orders' found"),
        ] {
            let hint = "Write \"pgfresh snapshot scratch TEMPLATE\".";
            assert_eq!(
                template(line).unwrap_err().to_string(),
                format!("pgfresh: {message}\nHINT:  {hint}\n")
            );
        }
    }
}
