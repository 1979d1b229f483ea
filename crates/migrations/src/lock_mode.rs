//! Defines `PostgreSQL`'s table lock modes and determines which of them conflict.

use std::fmt;

use serde::Serialize;

/// A table lock mode. Modes are ordered from the weakest to the strongest. Source: the table "Conflicting Lock Modes"
/// in the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// ACCESS SHARE, taken by SELECT.
    AccessShare,
    /// ROW SHARE, taken by SELECT FOR UPDATE and by foreign-key checks.
    RowShare,
    /// ROW EXCLUSIVE, taken by INSERT, UPDATE, DELETE and MERGE.
    RowExclusive,
    /// SHARE UPDATE EXCLUSIVE, taken by CREATE INDEX CONCURRENTLY and VALIDATE CONSTRAINT.
    ShareUpdateExclusive,
    /// SHARE, taken by CREATE INDEX.
    Share,
    /// SHARE ROW EXCLUSIVE, taken by ADD FOREIGN KEY and CREATE TRIGGER.
    ShareRowExclusive,
    /// EXCLUSIVE, taken by REFRESH MATERIALIZED VIEW CONCURRENTLY.
    Exclusive,
    /// ACCESS EXCLUSIVE, taken by most forms of ALTER TABLE.
    AccessExclusive,
}

impl LockMode {
    /// All modes, from the weakest to the strongest.
    pub const ALL: [Self; 8] = [
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// Returns the mode that `pg_locks` calls `name`, such as `AccessExclusiveLock`.
    #[must_use]
    pub fn from_catalog(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| {
            let words = mode.as_sql().split(' ').map(|word| word[..1].to_owned() + &word[1..].to_lowercase());
            name.strip_suffix("Lock").is_some_and(|name| words.collect::<String>() == name)
        })
    }

    /// Returns the mode's name in SQL, such as `ACCESS EXCLUSIVE`.
    #[must_use]
    pub fn as_sql(self) -> &'static str {
        match self {
            Self::AccessShare => "ACCESS SHARE",
            Self::RowShare => "ROW SHARE",
            Self::RowExclusive => "ROW EXCLUSIVE",
            Self::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::Exclusive => "EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        }
    }

    /// Returns true if a session that requests `other` waits while another session holds this mode. Swapping the two
    /// modes doesn't change the result.
    #[must_use]
    pub fn conflicts_with(self, other: Self) -> bool {
        let weaker = self.min(other);
        let stronger = self.max(other);
        match weaker {
            Self::AccessShare => stronger == Self::AccessExclusive,
            Self::RowShare => stronger >= Self::Exclusive,
            Self::RowExclusive => stronger >= Self::Share,
            Self::Share => stronger != Self::Share,
            Self::ShareUpdateExclusive
            | Self::ShareRowExclusive
            | Self::Exclusive
            | Self::AccessExclusive => true,
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_sql())
    }
}

impl Serialize for LockMode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_sql())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table from the manual. A row is a requested mode, a column is a mode that another session holds.
    const MANUAL: [&str; 8] =
        [".......x", "......xx", "....xxxx", "...xxxxx", "..xx.xxx", "..xxxxxx", ".xxxxxxx", "xxxxxxxx"];

    #[test]
    fn conflicts_are_those_of_the_manual() {
        for (row, requested) in MANUAL.iter().zip(LockMode::ALL) {
            let conflicts = LockMode::ALL.map(|held| if held.conflicts_with(requested) { 'x' } else { '.' });
            assert_eq!(conflicts.iter().collect::<String>(), **row, "{requested}");
        }
    }

    #[test]
    fn names_of_the_catalog_are_known() {
        for (name, mode) in [
            ("AccessShareLock", LockMode::AccessShare),
            ("ShareUpdateExclusiveLock", LockMode::ShareUpdateExclusive),
            ("ShareLock", LockMode::Share),
            ("AccessExclusiveLock", LockMode::AccessExclusive),
        ] {
            assert_eq!(LockMode::from_catalog(name), Some(mode));
        }
        assert_eq!(LockMode::from_catalog("SIReadLock"), None);
    }
}
