//! Finds the files of migrations, for annotations beside the code.

use std::collections::BTreeMap;

use migrations::MigrationReport;

use super::base::Base;
use super::git::git;
use crate::failure::Failure;

/// Returns the path in the repository for each migration of the report whose file is known. Only files that are new or
/// changed since the older revision count.
pub(super) fn find(base: &Base, report: &MigrationReport) -> Result<BTreeMap<String, String>, Failure> {
    let mut files = Vec::new();
    for words in [
        &["diff", "--name-only", "-z", "--diff-filter=d", &base.revision.commit, "--"][..],
        &["ls-files", "-z", "--others", "--exclude-standard"],
    ] {
        let listed = base.repository.expect("list the changed files", &mut git(words.iter().copied()))?;
        let listed = listed.split(|byte| *byte == 0).filter_map(|path| std::str::from_utf8(path).ok());
        files.extend(listed.filter(|path| !path.is_empty()).map(str::to_owned));
    }
    let names = report.statements.iter().filter_map(|statement| statement.migration.as_ref());
    Ok(names.filter_map(|name| Some((name.clone(), file_of(name, &files)?.clone()))).collect())
}

/// Returns the only file that can be this migration.
fn file_of<'f>(migration: &str, files: &'f [String]) -> Option<&'f String> {
    let mut found = files.iter().filter(|file| is_file_of(file, migration));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Returns true if a file has the name of a migration, or begins with its version. Tools separate a version from the rest
/// by underscores or a hyphen.
fn is_file_of(file: &str, migration: &str) -> bool {
    let parts = file.rsplit('/');
    let mut name = parts.clone().next().unwrap_or_default();
    // Prisma has a folder for each migration.
    if name == "migration.sql" {
        name = parts.clone().nth(1).unwrap_or_default();
    }
    let stem = name.split('.').next().unwrap_or_default();
    if file == migration || name == migration || stem == migration {
        return true;
    }
    // Django's names begin with the application, as in "shop.0002_orders".
    if let Some((application, rest)) = migration.split_once('.')
        && stem == rest
    {
        return file.split('/').any(|folder| folder == application);
    }
    let version = stem.strip_prefix(migration).or_else(|| stem.strip_prefix('V')?.strip_prefix(migration));
    version.is_some_and(|rest| migration.len() > 1 && rest.starts_with(['_', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_tools_give_them() {
        for (file, migration) in [
            ("db/0042_orders.sql", "db/0042_orders.sql"),
            ("migrations/0042_orders.py", "0042_orders.py"),
            ("migrations/versions/ae1027a6_add_orders.py", "ae1027a6"),
            ("src/shop/migrations/0002_orders.py", "shop.0002_orders"),
            ("db/migrate/20240101120000_add_orders.rb", "20240101120000"),
            ("sql/V12__orders.sql", "12"),
            ("migrations/20240101_orders.up.sql", "20240101_orders"),
            ("prisma/migrations/2024_orders/migration.sql", "2024_orders"),
        ] {
            assert!(is_file_of(file, migration), "{file} {migration}");
        }
        for (file, migration) in [
            ("migrations/0042_orders.py", "004"),
            ("other/migrations/0002_orders.py", "shop.0002_orders"),
            ("sql/V12__orders.sql", "1"),
            ("README.md", "12"),
        ] {
            assert!(!is_file_of(file, migration), "{file} {migration}");
        }
    }

    #[test]
    fn ambiguous_file_is_left_out() {
        let files = ["a/0001_x.sql", "b/0001_x.sql"].map(str::to_owned);
        assert_eq!(file_of("0001_x.sql", &files), None);
        assert_eq!(file_of("a/0001_x.sql", &files[..1]), Some(&files[0]));
    }
}
