//! Selects the account that owns a server's files and runs its processes. PostgreSQL refuses to run as
//! root, so root needs an unprivileged account. Other users run the server under their own account.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use std::process::{Command, Stdio};

/// Accounts under which root can run servers, in order of preference.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// The user and group that run the server and own its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// True if pgfresh itself runs under a different account. In this case, pgfresh must make this account
    /// the owner of the server's files.
    pub foreign: bool,
}

/// Reasons why root can't find an account for a server.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// `/etc/passwd` has neither `postgres` nor `nobody`.
    #[error("cannot run a server as root: \"/etc/passwd\" has neither \"postgres\" nor \"nobody\"")]
    Absent,
    /// Our user namespace doesn't map either account, and the kernel doesn't let us create a new namespace.
    #[error("cannot run a server as root: this user namespace has no other user")]
    Alone(#[source] io::Error),
}

impl AccountError {
    /// Returns advice for the user.
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
    /// Returns the account that this process runs under.
    #[must_use]
    pub fn ours() -> Self {
        Self { uid: sys::user(), gid: sys::group(), foreign: false }
    }

    /// Returns the account that servers run under. This is our own account unless we are root. Root uses
    /// `postgres`, or `nobody` if there is no `postgres`.
    ///
    /// In a user namespace that maps neither of these accounts, root has
    /// to use the root account. Servers then run under [`Self::alias`].
    ///
    /// This reads `/etc/passwd` directly, because a static binary can't use the name service. Both accounts
    /// are always local.
    ///
    /// # Errors
    /// Returns [`AccountError::Absent`] if neither account exists. Returns [`AccountError::Alone`] if
    /// our user namespace doesn't map either account and the kernel refuses to create a new namespace.
    pub fn for_server() -> Result<Self, AccountError> {
        if !sys::is_root() {
            return Ok(Self::ours());
        }
        let passwd = passwd();
        let known: Vec<_> = ACCOUNTS.iter().filter_map(|name| find_account(&passwd, name)).collect();
        let first = known.first().cloned().ok_or(AccountError::Absent)?;
        if let Some(account) = known.into_iter().find(|account| sys::may_become(account.uid, account.gid)) {
            return Ok(account);
        }
        let mut trial = Command::new(sys::this_program());
        trial.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::run_in_user_namespace(&mut trial, first.uid, first.gid);
        trial.status().map_err(AccountError::Alone)?;
        Ok(Self::ours())
    }

    /// Returns a uid and gid for programs that refuse to run as root: they can run under these ids in a user
    /// namespace. Returns `None` for any account other than root's. See [`sys::run_in_user_namespace`].
    #[must_use]
    pub fn alias(&self) -> Option<(u32, u32)> {
        if self.uid == 0 { Self::named_alias() } else { None }
    }

    /// Returns the uid and gid of `postgres`, or of `nobody` if `/etc/passwd` has no `postgres`, for programs
    /// that need their account to have a name. Returns `None` if `/etc/passwd` has neither account.
    #[must_use]
    pub fn named_alias() -> Option<(u32, u32)> {
        let passwd = passwd();
        ACCOUNTS.iter().find_map(|name| find_account(&passwd, name)).map(|account| (account.uid, account.gid))
    }

    /// Returns true if `/etc/passwd` has a name for this account's uid.
    #[must_use]
    pub fn has_name(&self) -> bool {
        let uid = self.uid.to_string();
        passwd().lines().any(|line| line.split(':').nth(2) == Some(&uid))
    }

    /// Returns true if this account can enter `directory` and every directory above it.
    #[must_use]
    pub fn can_reach(&self, directory: &Path) -> bool {
        // `access(2)` only checks permissions for our own uid. For another account, or for root under an
        // alias, the mode bits are all we have.
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

    /// Makes this account the owner of `file`. Does nothing if this is our own account.
    pub fn change_owner(&self, file: impl AsFd) -> io::Result<()> {
        if self.foreign {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}

fn passwd() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

fn find_account(passwd: &str, name: &str) -> Option<Account> {
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
    fn account_lookup_needs_full_name_and_excludes_root() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7:::\npostgres:x:101:104::/x:/bin/sh\nnobody:x:0:0:::\n";
        assert_eq!(find_account(passwd, "postgres"), Some(Account { uid: 101, gid: 104, foreign: true }));
        assert_eq!(find_account(passwd, "nobody"), None);
        assert_eq!(find_account(passwd, "absent"), None);
    }

    #[test]
    fn private_parent_directory_is_unreachable() {
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
