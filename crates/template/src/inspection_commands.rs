//! Builds two shell commands for a server that pgfresh retains for inspection. One opens the server, the other removes
//! it.

use std::path::Path;

use storage::{Account, PlaceRequest};

use crate::Provisioner;

impl Provisioner {
    /// Returns the command that starts the server in the run directory `path` and opens its database.
    pub(crate) fn command_to_open(&self, path: &Path, database: &str) -> String {
        let [data, log, socket] = ["data", "log", "socket"].map(|name| quoted_path(&path.join(name)));
        // pg_ctl also passes the options to a shell, so they need a second level of quotes.
        let options = quoted(&format!("-c listen_addresses= -k {socket}"));
        let pg_ctl = quoted_path(&self.installation.bin().join("pg_ctl"));
        let Account { uid, gid, foreign } = self.account;
        let become_it = if foreign {
            format!("setpriv --reuid={uid} --regid={gid} --clear-groups ")
        } else {
            String::new()
        };
        format!(
            "{become_it}{pg_ctl} -D {data} -l {log} -o {options} -w start && psql -h {socket} -U {} {}",
            server::SUPERUSER,
            quoted(database)
        )
    }

    /// Returns the command that removes everything this provisioner retained. It includes all flags that pgfresh needs
    /// to find these files.
    #[must_use]
    pub fn command_to_sweep(&self) -> String {
        let mut command = "pgfresh sweep --kept".to_owned();
        if let PlaceRequest::At(path) = &self.server_options().place {
            command += &format!(" --place {}", quoted_path(path));
        }
        if self.cache.is_chosen() {
            command += &format!(" --cache {}", quoted_path(self.cache.root()));
        }
        command
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Quotes a text for a shell. A text with a zero byte can't be quoted, but paths and database names never contain one.
fn quoted(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), Into::into)
}
