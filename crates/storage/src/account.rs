//! Whom the files of a server belong to: us, or an unprivileged account when we are root.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use std::process::{Command, Stdio};

/// The accounts that a server of root's may run as.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// The account that runs the server and owns its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Whether it is another one than ours, so that files must be given to it.
    pub foreign: bool,
}

/// There is no account that a server started by root could run as.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No account that is known to be unprivileged.
    #[error("cannot run a server as root: \"/etc/passwd\" has neither \"postgres\" nor \"nobody\"")]
    Absent,
    /// We are root of a user namespace without other users, and may not make another namespace.
    #[error("cannot run a server as root: this user namespace has no other user")]
    Alone(#[source] io::Error),
}

impl AccountError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Absent => {
                "Add an account for it (useradd --system postgres), or run pgfresh as an ordinary user."
            }
            Self::Alone(_) => {
                "Run pgfresh outside of the namespace, map more users into it (unshare --map-auto), or allow user \
                 namespaces in it (sysctl user.max_user_namespaces)."
            }
        }
        .to_owned()
    }
}

impl Account {
    /// The one that we run as.
    #[must_use]
    pub fn ours() -> Self {
        Self { uid: sys::user(), gid: sys::group(), foreign: false }
    }

    /// Our own account, or as root the one named `postgres`, or else `nobody`. Root of a user namespace in which neither
    /// exists keeps its own, and its servers run under [`Self::alias`].
    ///
    /// Reads `/etc/passwd` itself: a static binary cannot ask the name service, and both accounts are local ones.
    pub fn for_server() -> Result<Self, AccountError> {
        if !sys::is_root() {
            return Ok(Self::ours());
        }
        let passwd = passwd();
        let known: Vec<_> = ACCOUNTS.iter().filter_map(|name| named(&passwd, name)).collect();
        let first = known.first().cloned().ok_or(AccountError::Absent)?;
        if let Some(account) = known.into_iter().find(|account| sys::may_become(account.uid, account.gid)) {
            return Ok(account);
        }
        let mut trial = Command::new(sys::this_program());
        trial.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::call_ourselves(&mut trial, first.uid, first.gid);
        trial.status().map_err(AccountError::Alone)?;
        Ok(Self::ours())
    }

    /// Under which numbers programs that refuse to be root have to know this account, if it is root's: those of an account
    /// that has a name. See [`sys::call_ourselves`].
    #[must_use]
    pub fn alias(&self) -> Option<(u32, u32)> {
        if self.uid == 0 { Self::named_alias() } else { None }
    }

    /// The numbers of an account that has a name, for programs that want one, where ours has none.
    #[must_use]
    pub fn named_alias() -> Option<(u32, u32)> {
        let passwd = passwd();
        ACCOUNTS.iter().find_map(|name| named(&passwd, name)).map(|account| (account.uid, account.gid))
    }

    /// Whether `/etc/passwd` has a name for it.
    #[must_use]
    pub fn has_name(&self) -> bool {
        let uid = self.uid.to_string();
        passwd().lines().any(|line| line.split(':').nth(2) == Some(&uid))
    }

    /// Whether this account may enter `directory` and pass through everything above it.
    #[must_use]
    pub fn can_reach(&self, directory: &Path) -> bool {
        // Of another account, and of root's under another number, the modes are all that is known.
        if !self.foreign && !sys::is_root() {
            return sys::may_enter(directory);
        }
        let Ok(directory) = directory.canonicalize() else { return false };
        directory.ancestors().all(|folder| {
            fs::metadata(folder).is_ok_and(|meta| {
                let shift = match () {
                    () if meta.uid() == self.uid => 6,
                    () if meta.gid() == self.gid => 3,
                    () => 0,
                };
                (meta.mode() >> shift) & 1 == 1
            })
        })
    }

    /// Gives a file that we made to this account, where that is not ours anyway.
    pub(crate) fn give(&self, file: impl AsFd) -> io::Result<()> {
        if self.foreign {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}

fn passwd() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

fn named(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2);
    let uid = ids.next()?.parse().ok()?;
    let gid = ids.next()?.parse().ok()?;
    (uid != 0).then_some(Account { uid, gid, foreign: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name_and_never_is_root() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7:::\npostgres:x:101:104::/x:/bin/sh\nnobody:x:0:0:::\n";
        assert_eq!(named(passwd, "postgres"), Some(Account { uid: 101, gid: 104, foreign: true }));
        assert_eq!(named(passwd, "nobody"), None);
        assert_eq!(named(passwd, "absent"), None);
    }

    #[test]
    fn a_private_ancestor_keeps_others_out() {
        use std::os::unix::fs::PermissionsExt;
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let stranger = Account { uid: 65_533, gid: 65_533, foreign: true };
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!stranger.can_reach(&inner));
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(stranger.can_reach(&inner));
    }
}
