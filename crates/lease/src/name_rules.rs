//! Rules for the names of databases that clients create by connecting to them.

/// Patterns for database names. In a pattern, `*` matches any characters, and `?` matches one character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameRules {
    /// Patterns for names under which pgfresh creates databases. If empty, all names are allowed.
    pub names: Vec<String>,
    /// Patterns for names under which pgfresh creates no databases, even if they match `names`.
    pub except: Vec<String>,
}

impl NameRules {
    /// Whether the rules allow a database of this name.
    #[must_use]
    pub fn allow(&self, name: &str) -> bool {
        let is_among = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.names.is_empty() || is_among(&self.names)) && !is_among(&self.except)
    }
}

/// Whether a pattern matches the whole name. The number of steps is at most the product of their lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The last star, and the end of the characters that it matches.
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
    use super::*;

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
