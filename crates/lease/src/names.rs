//! Generates and checks the names of leases and the names of databases
//! that pgfresh prepares or keeps. Users can limit lease names with rules.

use std::hash::{DefaultHasher, Hash, Hasher};

use ::template::PREFIX;

use crate::error::LeaseError;

/// Names of the databases created by initdb, which leases can't use.
pub(crate) const ALWAYS: [&str; 3] = ["postgres", "template0", "template1"];
/// Maximum length of a name, in bytes. The server truncates longer names. Source: NAMEDATALEN.
const LONGEST_NAME: usize = 63;
/// Maximum length of the part before `_failed_` in the name of a kept database, in bytes.
const KEPT_OF_NAME: usize = 40;
/// In the name of a database in preparation, the part between [`PREFIX`] and the number.
const PREPARING: &str = "preparing_";
/// In the name of a ready database, the part between [`PREFIX`] and the number.
const READY: &str = "ready_";
/// In the name of a copy that stands in for a replica, the part between [`PREFIX`] and the lease's name.
const REPLICA: &str = "replica_";
/// Prefix for a label that can't begin a name on its own.
const OF_TEST: &str = "test_";

/// Truncates a name to the server's maximum length, as the server does.
#[must_use]
pub fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
}

/// Returns the name, or an error if the name contains a zero byte, because the server would
/// truncate it there. All other characters are allowed, including control characters.
pub(crate) fn whole(name: &str) -> Result<&str, LeaseError> {
    if name.contains('\0') {
        return Err(LeaseError::Name { name: name.to_owned(), why: "it has a zero byte" });
    }
    Ok(name)
}

/// Generates the name of a database in preparation, made unique by the serial number.
///
/// Programs that list databases can see this name. If they connect to it after pgfresh has renamed the database, they
/// get a fresh database, as with any other name.
pub(crate) fn preparing(serial: u64) -> String {
    format!("{}{serial}", preparing_prefix())
}

/// Returns the prefix of the names returned by [`preparing`].
pub(crate) fn preparing_prefix() -> String {
    format!("{PREFIX}{PREPARING}")
}

/// Returns the prefix of the names returned by [`ready`].
pub(crate) fn ready_prefix() -> String {
    format!("{PREFIX}{READY}")
}

/// Returns true if a name has the form returned by [`preparing`].
pub(crate) fn is_preparing(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|name| name.starts_with(PREPARING))
}

/// Returns the name for a database that is now ready, given its name during preparation.
pub(crate) fn ready(name: &str) -> String {
    name.replacen(PREPARING, READY, 1)
}

/// Returns the name of the copy that stands in for a replica of the lease `name`, if the lease has no server of its
/// own. A hash distinguishes long names with the same beginning.
pub(crate) fn replica_copy(name: &str) -> String {
    let prefix = format!("{PREFIX}{REPLICA}");
    if prefix.len() + name.len() <= LONGEST_NAME {
        return prefix + name;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = format!("_{:016x}", hasher.finish());
    let begin = &name[..name.floor_char_boundary(LONGEST_NAME - prefix.len() - hash.len())];
    prefix + begin + &hash
}

/// Returns true if a name has the form returned by [`replica_copy`].
pub(crate) fn is_replica_copy(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|name| name.starts_with(REPLICA))
}

/// Checks that a lease may have this name.
pub(crate) fn check_name(name: &str) -> Result<(), LeaseError> {
    let why = match whole(name)? {
        "" => "it is empty",
        name if name.starts_with(PREFIX) && !is_preparing(name) => {
            "names that begin with pgfresh_ are reserved for pgfresh"
        }
        name if ALWAYS.contains(&name) => "PostgreSQL always has a database with this name",
        _ => return Ok(()),
    };
    Err(LeaseError::Name { name: name.to_owned(), why })
}

/// Generates the name of a database that pgfresh keeps for a failed test. The name begins with the name of the `test`,
/// or else the database's, and the number makes it unique in the server.
pub(crate) fn name_of_kept(database: &str, test: Option<&str>, number: u64) -> String {
    let begin = match test {
        Some(test) => identifier_like(test),
        None => database[..database.floor_char_boundary(KEPT_OF_NAME)].to_owned(),
    };
    format!("{begin}_failed_{number}")
}

/// Converts the ASCII letters and digits of `label` to an identifier that doesn't need quotes. If the label is
/// too long, keeps only its end, because the end describes the test better than the folder at the beginning.
fn identifier_like(label: &str) -> String {
    let words = label.split(|sign: char| !sign.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let all = words.collect::<Vec<_>>().join("_").to_ascii_lowercase();
    let mut end = &all[all.len().saturating_sub(KEPT_OF_NAME)..];
    if end.len() < all.len() {
        // If there are several words, begin with a whole word.
        end = end.split_once('_').map_or(end, |(_, words)| words);
    }
    let is_plain = end.starts_with(|first: char| first.is_ascii_lowercase()) && !end.starts_with(PREFIX);
    if is_plain { end.to_owned() } else { format!("{OF_TEST}{end}") }
}

/// Patterns for database names. `*` matches any characters, and `?` matches one character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameRules {
    /// Patterns for the names that pgfresh may give to databases. If empty, all names are allowed.
    pub names: Vec<String>,
    /// Patterns for the names that pgfresh must not give to databases. These take precedence over `names`.
    pub except: Vec<String>,
}

impl NameRules {
    /// Returns true if the rules allow a database with this name.
    #[must_use]
    pub fn allow(&self, name: &str) -> bool {
        let is_among = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.names.is_empty() || is_among(&self.names)) && !is_among(&self.except)
    }
}

/// Returns true if a pattern matches the whole name. The number of steps is at most the product of both lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The last star so far, and the end of the characters matching it.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(sign) if *sign == '?' || *sign == name[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((starred, end)) = star else { return false };
                star = Some((starred, end + 1));
                (at, read) = (starred + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|sign| *sign == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kept_database_is_called_after_its_test() {
        for (test, name) in [
            ("tests/test_x.py::TestOrders::test_y[a-1]", "tests_test_x_py_testorders_test_y_a_1_failed_7"),
            (
                "tests/integration/checkout/test_orders.py::test_total",
                "checkout_test_orders_py_test_total_failed_7",
            ),
            (&"x".repeat(10_000), &format!("{}_failed_7", "x".repeat(KEPT_OF_NAME))),
            ("Größe > läuft", "gr_e_l_uft_failed_7"),
            ("1 + 1", "test_1_1_failed_7"),
            ("pgfresh_x", "test_pgfresh_x_failed_7"),
            ("\x1b]0;\n'\"; DROP", "test_0_drop_failed_7"),
            ("テスト", "test__failed_7"),
        ] {
            assert_eq!(name_of_kept("fresh_1", Some(test), 7), name);
        }
        assert_eq!(name_of_kept("größe", None, 7), "größe_failed_7");
    }

    proptest! {
        #[test]
        fn kept_database_name_is_plain_for_any_test(test in any::<String>(), number in 0..10_u64.pow(10)) {
            let name = name_of_kept("fresh_1", Some(&test), number);
            prop_assert!(name.len() <= LONGEST_NAME && check_name(&name).is_ok(), "{name}");
            prop_assert!(name.starts_with(|first: char| first.is_ascii_lowercase()), "{name}");
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'), "{name}");
            prop_assert!(name.ends_with(&format!("_failed_{number}")), "{name}");
        }
    }

    #[test]
    fn replica_copies_of_different_leases_differ() {
        let long = "é".repeat(31);
        let names =
            ["app".to_owned(), long.clone(), long.clone() + "x", long + "y"].map(|name| replica_copy(&name));
        assert_eq!(names[0], "pgfresh_replica_app");
        for (number, name) in names.iter().enumerate() {
            assert!(
                name.len() <= LONGEST_NAME && is_replica_copy(name) && check_name(name).is_err(),
                "{name}"
            );
            assert!(!names[..number].contains(name), "{name}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("app", "app", true),
            ("app", "apps", false),
            ("app", "App", false),
            ("test_*", "test_", true),
            ("test_*", "a_test_", false),
            ("*_test", "my_test_test", true),
            ("a*b*c", "a_b_b_c", true),
            ("a*b*c", "a_c_b", false),
            ("gw?", "gw7", true),
            ("gw?", "gw", false),
            ("größe?", "größe1", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn exceptions_outweigh_the_names_that_are_created() {
        let rules = |names: &[&str], except: &[&str]| {
            let [names, except] =
                [names, except].map(|list| list.iter().map(|&text| text.to_owned()).collect());
            NameRules { names, except }
        };
        assert!(rules(&[], &[]).allow("any"));
        assert!(rules(&["test_*", "app"], &[]).allow("app"));
        assert!(!rules(&["test_*", "app"], &[]).allow("other"));
        assert!(!rules(&[], &["does_not_exist*"]).allow("does_not_exist_7"));
        assert!(!rules(&["test_*"], &["test_none"]).allow("test_none"));
    }
}
