//! Selects the columns to redact, and everything that depends on them.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use globset::{GlobBuilder, GlobMatcher};
use pgwire::{SqlLexer, Token};

use super::Redaction;
use crate::{ExtendedStatistics, RelationName, RelationStatistics};

/// Maximum number of ancestors of a table to follow. A table with more ancestors is redacted completely.
const ANCESTORS: usize = 100;

/// A column pattern: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN. Each part may contain `*` and `?`. Matching ignores
/// case.
#[derive(Debug, Clone)]
pub struct ColumnPattern {
    text: String,
    schema: GlobMatcher,
    table: GlobMatcher,
    column: GlobMatcher,
}

/// Error for a text that isn't a column pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a column pattern")]
pub struct PatternError(String);

impl ColumnPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has more than three parts, or if a part is empty.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let invalid = || PatternError(text.to_owned());
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
            return Err(invalid());
        }
        let glob = |from_end: usize| {
            let part = parts.len().checked_sub(from_end).map_or("*", |at| parts[at]);
            // Names may contain other special glob characters, so escape them.
            let escaped: String = part.to_lowercase().chars().flat_map(escaped).collect();
            // Globs would ignore only the case of ASCII letters.
            let glob = GlobBuilder::new(&escaped).backslash_escape(true).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|_| invalid())
        };
        Ok(Self { text: text.to_owned(), schema: glob(3)?, table: glob(2)?, column: glob(1)? })
    }

    fn matches(&self, table: &RelationName, column: &str) -> bool {
        self.column.is_match(column.to_lowercase())
            && self.table.is_match(table.name.to_lowercase())
            && self.schema.is_match(table.schema.to_lowercase())
    }
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let escape = matches!(character, '[' | ']' | '{' | '}' | '\\' | '!').then_some('\\');
    escape.into_iter().chain([character])
}

/// The parts of a relation to redact.
pub(super) struct Selected {
    /// Whether to redact each column.
    pub(super) columns: Vec<bool>,
    /// Whether to remove the literals from the definition.
    pub(super) literals: bool,
}

/// Decides which columns to redact, and records which patterns have matched a column.
pub(super) struct Selection<'a> {
    redaction: &'a Redaction,
    by_name: HashMap<RelationName, Family>,
    used: Vec<Cell<bool>>,
}

/// Properties of a table that other columns and tables depend on.
struct Family {
    parents: Vec<RelationName>,
    generated: HashMap<String, Vec<String>>,
}

impl<'a> Selection<'a> {
    pub(super) fn new(redaction: &'a Redaction, relations: &[RelationStatistics]) -> Self {
        let family = |relation: &RelationStatistics| Family {
            parents: relation.parents.clone(),
            generated: relation.generated.clone().into_iter().collect(),
        };
        let related = relations.iter().filter(|one| !one.parents.is_empty() || !one.generated.is_empty());
        let by_name = related.map(|relation| (relation.relation_name(), family(relation))).collect();
        Self { redaction, by_name, used: vec![Cell::new(false); redaction.patterns.len()] }
    }

    /// Returns a pattern that hasn't matched any column.
    pub(super) fn unmatched(&self) -> Option<String> {
        let unused = self.used.iter().position(|used| !used.get())?;
        Some(self.redaction.patterns[unused].text.clone())
    }

    pub(super) fn of_relation(&mut self, relation: &RelationStatistics) -> Selected {
        let Some(table) = relation.indexed_table() else {
            let name = relation.relation_name();
            let tables = self.with_ancestors(&name);
            let is_selected = |column: &crate::ColumnStatistics| match column.number {
                // Only index columns have numbers. pg_dump doesn't show which table columns an index uses, so redact
                // every index column.
                Some(_) => self.redacts_anything(),
                None => self.is_selected(tables.as_deref(), &column.column),
            };
            return Selected { columns: relation.columns.iter().map(is_selected).collect(), literals: false };
        };
        let tables = self.with_ancestors(&table);
        let uses_selected = match &relation.definition {
            Some(definition) => self.mentions_selected(tables.as_deref(), definition, true),
            None => self.redacts_anything(),
        };
        Selected { columns: vec![uses_selected; relation.columns.len()], literals: uses_selected }
    }

    /// Returns which columns and expressions of a statistics object to redact.
    pub(super) fn of_extended(&mut self, object: &ExtendedStatistics) -> Vec<bool> {
        let tables = self.with_ancestors(&object.table);
        let is_expression = |column: &String| {
            object.expressions.iter().any(|expression| expression.column == *column)
                || column.contains(['(', ' ', '\''])
        };
        let is_selected = |column: &String| {
            self.is_selected(tables.as_deref(), column)
                || is_expression(column) && self.mentions_selected(tables.as_deref(), column, false)
        };
        object.columns.iter().map(is_selected).collect()
    }

    fn redacts_anything(&self) -> bool {
        self.redaction.all || self.redaction.by_name || !self.redaction.patterns.is_empty()
    }

    /// Returns the table and all its ancestors. `None` if there are too many ancestors.
    fn with_ancestors(&self, table: &RelationName) -> Option<Vec<RelationName>> {
        let mut found = vec![table.clone()];
        let mut seen: HashSet<RelationName> = found.iter().cloned().collect();
        let mut next = 0;
        while let Some(name) = found.get(next) {
            let parents = self.by_name.get(name).map(|family| family.parents.clone()).unwrap_or_default();
            found.extend(parents.into_iter().filter(|parent| seen.insert(parent.clone())));
            if found.len() > ANCESTORS {
                return None;
            }
            next += 1;
        }
        Some(found)
    }

    /// Returns true if the column, or a column that it is generated from, is selected in any of `tables`.
    fn is_selected(&self, tables: Option<&[RelationName]>, column: &str) -> bool {
        let Some(tables) = tables else { return self.redacts_anything() };
        let mut columns = vec![column.to_owned()];
        let mut seen: HashSet<String> = columns.iter().cloned().collect();
        let mut next = 0;
        while let Some(column) = columns.get(next).cloned() {
            let families = tables.iter().filter_map(|table| self.by_name.get(table));
            let sources = families.filter_map(|family| family.generated.get(&column)).flatten();
            columns
                .extend(sources.filter(|source| seen.insert((*source).clone())).cloned().collect::<Vec<_>>());
            next += 1;
        }
        let by_name = columns.iter().any(|column| self.redaction.selects(column));
        // Check all pairs, without stopping at the first match, so that every pattern that matches is recorded.
        let pairs = columns.iter().flat_map(|column| tables.iter().map(move |table| (table, column)));
        pairs.fold(by_name, |selected, (table, column)| self.matches(table, column) || selected)
    }

    /// Returns true if any pattern matches.
    fn matches(&self, table: &RelationName, column: &str) -> bool {
        let mut is_match = false;
        for (pattern, used) in self.redaction.patterns.iter().zip(&self.used) {
            if pattern.matches(table, column) {
                used.set(true);
                is_match = true;
            }
        }
        is_match
    }

    /// Returns true if an index definition or an expression uses a selected column or a whole row.
    fn mentions_selected(&self, tables: Option<&[RelationName]>, definition: &str, is_index: bool) -> bool {
        let mut lexer = SqlLexer::new(definition.as_bytes(), true);
        let tokens: Vec<Token<'_>> = std::iter::from_fn(|| lexer.token()).collect();
        // The names before USING belong to the index and its table, so skip them.
        let using = tokens.iter().position(|token| token.is_word(b"using")).filter(|_| is_index);
        let tokens = &tokens[using.map_or(0, |at| at + 1)..];
        let mut is_mentioned = false;
        for (at, token) in
            tokens.iter().enumerate().filter(|(_, token)| token.is_name() || token.is_sign(b'*'))
        {
            let before = |sign| at > 0 && tokens[at - 1].is_sign(sign);
            is_mentioned |= match token.is_name() {
                // A type after `::` isn't a column.
                true if before(b':') => false,
                true => token.name().is_none_or(|name| self.is_selected(tables, &name)),
                false => before(b'.') && self.redacts_anything(),
            };
        }
        is_mentioned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_ignore_the_case_of_every_letter() {
        let table = RelationName { schema: "public".to_owned(), name: "Ünï".to_owned() };
        for pattern in ["ünï.größe", "ÜNÏ.GRÖSSE*", "*.Gr*"] {
            let pattern = ColumnPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(&table, "Größe"), !pattern.text.contains("SS"), "{pattern:?}");
        }
        assert!(!ColumnPattern::parse("uni.*").unwrap().matches(&table, "Größe"));
    }
}
