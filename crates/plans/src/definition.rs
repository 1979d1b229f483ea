//! Parses index definitions, as `pg_get_indexdef` prints them.

use std::fmt;

use crate::Candidate;
use crate::conditions::{list, outer_words};
use crate::names::{full_name, short_name};

/// The parts of an index definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexDefinition {
    /// Schema of the table.
    pub(crate) schema: String,
    /// Name of the table.
    pub(crate) table: String,
    /// Access method, such as `btree`.
    pub(crate) method: String,
    /// Key columns and expressions as SQL, with operator class and sort order.
    pub(crate) keys: Vec<String>,
    /// Columns of the INCLUDE clause.
    pub(crate) included: Vec<String>,
    /// Condition of a partial index. `None` for other indexes.
    pub(crate) predicate: Option<String>,
}

impl IndexDefinition {
    /// Parses a definition of an index on `table`. Returns `None` if the definition has an unexpected form.
    pub(crate) fn parse(schema: &str, table: &str, definition: &str) -> Option<Self> {
        let words = outer_words(definition);
        let method = words.windows(2).find(|pair| pair[0].0.eq_ignore_ascii_case("using"))?[1];
        let keys = parenthesised(definition, method.1 + method.0.len())?;
        let after = |word: &str| {
            let found = words.iter().find(|found| found.1 > method.1 && found.0.eq_ignore_ascii_case(word));
            found.map(|found| found.1 + found.0.len())
        };
        let included = after("include").and_then(|at| parenthesised(definition, at));
        let items = |text: &str| list(text).into_iter().map(str::to_owned).collect();
        Some(Self {
            schema: schema.to_owned(),
            table: table.to_owned(),
            method: method.0.to_owned(),
            keys: items(keys),
            included: included.map(items).unwrap_or_default(),
            predicate: after("where").map(|at| definition[at..].trim().to_owned()),
        })
    }

    /// Returns true if `other` also serves every search that `self` serves, because its keys begin with the keys of
    /// `self`.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        let stored = |column: &String| other.keys.contains(column) || other.included.contains(column);
        (&self.schema, &self.table, &self.method) == (&other.schema, &other.table, &other.method)
            && (other.predicate.is_none() || other.predicate == self.predicate)
            && if self.method == "btree" {
                other.keys.starts_with(&self.keys)
            } else {
                other.keys == self.keys
            }
            && self.included.iter().all(stored)
    }

    /// Returns the definition in the form that [`crate::Planner::create`] expects.
    pub(crate) fn candidate(&self) -> Candidate {
        Candidate {
            schema: self.schema.clone(),
            table: self.table.clone(),
            definition: format!(
                "ON {} USING {} {}",
                full_name(&self.schema, &self.table),
                self.method,
                self.rest()
            ),
        }
    }

    fn rest(&self) -> String {
        let mut rest = format!("({})", self.keys.join(", "));
        if !self.included.is_empty() {
            rest.push_str(&format!(" INCLUDE ({})", self.included.join(", ")));
        }
        if let Some(predicate) = &self.predicate {
            rest.push_str(&format!(" WHERE {predicate}"));
        }
        rest
    }
}

/// Writes the SQL statement that creates the index.
impl fmt::Display for IndexDefinition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = if self.method == "btree" { String::new() } else { format!("USING {} ", self.method) };
        let table = short_name(&self.schema, &self.table);
        write!(formatter, "CREATE INDEX ON {table} {method}{}", self.rest())
    }
}

/// Returns the text inside the parentheses that begin at `from`.
fn parenthesised(text: &str, from: usize) -> Option<&str> {
    let rest = text[from..].trim_start();
    let rest = rest.strip_prefix('(')?;
    // The text ends at the first closing parenthesis without a counterpart inside the text.
    let mut lexer = pgwire::SqlLexer::new(rest.as_bytes(), true);
    let mut depth = 0_usize;
    while let Some(token) = lexer.token() {
        if token.is_sign(b'(') {
            depth += 1;
        } else if token.is_sign(b')') {
            match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some(&rest[..lexer.position() - 1]),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(definition: &str) -> IndexDefinition {
        IndexDefinition::parse("public", "t", definition).unwrap()
    }

    #[test]
    fn definitions_are_split_into_parts() {
        let index = parsed(
            "CREATE UNIQUE INDEX \"a USING (b)\" ON ONLY public.t USING btree (a DESC, lower((b)::text) text_pattern_ops, \
             ((c ->> 'x,)'::text))) INCLUDE (d, e) WITH (fillfactor='70') WHERE (gone IS NULL)",
        );
        assert_eq!(index.method, "btree");
        assert_eq!(index.keys, ["a DESC", "lower((b)::text) text_pattern_ops", "((c ->> 'x,)'::text))"]);
        assert_eq!(index.included, ["d", "e"]);
        assert_eq!(index.predicate.as_deref(), Some("(gone IS NULL)"));
        assert_eq!(
            index.to_string(),
            "CREATE INDEX ON t (a DESC, lower((b)::text) text_pattern_ops, ((c ->> 'x,)'::text))) INCLUDE (d, e) \
             WHERE (gone IS NULL)"
        );
    }

    #[test]
    fn longer_index_contains_shorter_one() {
        let index = |rest: &str| parsed(&format!("CREATE INDEX i ON public.t USING {rest}"));
        let long = index("btree (a, b)");
        for part in ["btree (a)", "btree (a, b)", "btree (a) INCLUDE (b)", "btree (a) WHERE (b > 1)"] {
            assert!(index(part).is_part_of(&long), "{part}");
        }
        for other in ["btree (b)", "hash (a)", "btree (a DESC)", "btree (a) INCLUDE (c)", "btree (a, b, c)"] {
            assert!(!index(other).is_part_of(&long), "{other}");
        }
        assert!(!long.is_part_of(&index("btree (a, b, c) WHERE (b > 1)")));
        assert!(!index("gin (a)").is_part_of(&index("gin (a, b)")));
    }

    proptest! {
        #[test]
        fn no_definition_causes_a_panic(text in "(CREATE INDEX i ON t USING btree )?[\\(\\)a-z, 'é\"]{0,40}( WHERE x)?") {
            if let Some(index) = IndexDefinition::parse("s", "t", &text) {
                prop_assert!(index.is_part_of(&index));
            }
        }
    }
}
