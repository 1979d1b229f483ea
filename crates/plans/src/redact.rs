//! Removes personal data from statistics.
//!
//! Values of selected columns are replaced with tokens or removed. Other planner input stays unchanged: fractions,
//! widths, numbers of distinct values, correlations, and the names of tables, columns and indexes. See
//! [`Redaction::apply`].

mod names;
mod selection;
mod tokens;

use std::collections::HashMap;

use pgwire::{SqlLexer, TokenKind};

use self::names::suggests_personal_data;
use self::selection::Selection;
use self::tokens::Tokens;
use crate::{ColumnStatistics, ExtendedStatistics, RelationName, RelationStatistics, Slot, Statistics};

pub use self::selection::{ColumnPattern, PatternError};

/// Selects the columns to redact.
#[derive(Debug, Clone)]
pub struct Redaction {
    patterns: Vec<ColumnPattern>,
    /// Whether columns are selected by names such as `email`.
    by_name: bool,
    all: bool,
}

/// Reason why columns can't be redacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedactError {
    /// A pattern is malformed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// `all` is combined with another word.
    #[error("\"{0}\" cannot be combined with \"{1}\"")]
    Contradiction(String, String),
    /// A pattern doesn't select any column, so it may be misspelled.
    #[error("no column with statistics matches \"{0}\"")]
    Unmatched(String),
}

impl RedactError {
    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Pattern(_) | Self::Contradiction(..) => {
                "Write all, none, or SCHEMA.TABLE.COLUMN, TABLE.COLUMN or COLUMN, with * and ?.".to_owned()
            }
            Self::Unmatched(_) => {
                "Correct the name. If the column has no statistics yet, leave it out.".to_owned()
            }
        }
    }
}

/// Replacement for a literal.
const LITERAL: &str = "?";

impl Redaction {
    /// Parses the words after `--redact`: `all`, `none`, or column patterns. Without `none`, columns whose names
    /// suggest personal data are redacted, too.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern is malformed, or if `all` is combined with another word.
    pub fn parse(words: &[String]) -> Result<Self, RedactError> {
        let has = |word: &str| words.iter().any(|other| other == word);
        if has("all")
            && let Some(other) = words.iter().find(|word| *word != "all")
        {
            return Err(RedactError::Contradiction("all".to_owned(), other.clone()));
        }
        let patterns = words.iter().filter(|word| !matches!(word.as_str(), "all" | "none"));
        let patterns = patterns.map(|word| ColumnPattern::parse(word)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, by_name: !has("none"), all: has("all") })
    }

    /// Redacts all values of the selected columns, and all values derived from them: those of partitions, child tables,
    /// generated columns, index expressions and extended statistics. Replaces texts with tokens that sort in the same
    /// order. Removes other values, and texts whose type is unknown. Removes the literals from index definitions that
    /// use a selected column.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern doesn't match any column.
    pub fn apply(&self, statistics: &mut Statistics) -> Result<(), RedactError> {
        let mut selection = Selection::new(self, &statistics.relations);
        let mut plan = Vec::with_capacity(statistics.relations.len());
        for relation in &statistics.relations {
            plan.push(selection.of_relation(relation));
        }
        let extended: Vec<Vec<bool>> =
            statistics.extended.iter().map(|extended| selection.of_extended(extended)).collect();
        if let Some(pattern) = selection.unmatched() {
            return Err(RedactError::Unmatched(pattern));
        }
        let tokens = tokens(statistics, &plan, &extended);
        for (relation, selected) in statistics.relations.iter_mut().zip(&plan) {
            let name = relation.relation_name();
            for (column, _) in
                relation.columns.iter_mut().zip(&selected.columns).filter(|(_, is_one)| **is_one)
            {
                let key = (name.clone(), key(column));
                redact_column(column, tokens.get(&key));
            }
            if selected.literals {
                relation.definition = relation.definition.as_deref().map(without_literals);
            }
        }
        for (object, selected) in statistics.extended.iter_mut().zip(&extended) {
            redact_extended(object, selected, &tokens);
        }
        Ok(())
    }

    fn selects(&self, column: &str) -> bool {
        self.all || self.by_name && suggests_personal_data(column)
    }
}

/// Creates the tokens for all selected columns with a text type.
fn tokens(
    statistics: &Statistics,
    plan: &[selection::Selected],
    extended: &[Vec<bool>],
) -> HashMap<(RelationName, String), Tokens> {
    let mut all: HashMap<(RelationName, String), Tokens> = HashMap::new();
    for (relation, selected) in statistics.relations.iter().zip(plan) {
        let columns = relation.columns.iter().zip(&selected.columns);
        for (column, _) in columns.filter(|(column, is_one)| **is_one && is_text(&column.type_name)) {
            let tokens = all.entry((relation.relation_name(), key(column))).or_default();
            let values = |kind| column.slots.iter().find(|slot| slot.kind == kind)?.values.as_deref();
            tokens.add_sorted(values(2).unwrap_or_default());
            tokens.add(values(1).unwrap_or_default().iter());
        }
    }
    for (object, selected) in statistics.extended.iter().zip(extended) {
        for (position, column) in object.columns.iter().enumerate().filter(|(at, _)| selected[*at]) {
            if let Some(tokens) = all.get_mut(&(object.table.clone(), column.clone())) {
                tokens.add(object.common.iter().filter_map(|common| common.values[position].as_ref()));
            }
        }
    }
    all.values_mut().for_each(Tokens::assign);
    all
}

/// Returns a key that identifies a column within its relation.
fn key(column: &ColumnStatistics) -> String {
    match column.number {
        Some(number) => number.to_string(),
        None => column.column.clone(),
    }
}

/// Returns true if every token is a valid value of the type `type_name`.
fn is_text(type_name: &str) -> bool {
    let name = type_name.split('(').next().unwrap_or_default();
    let is_array = type_name.ends_with("[]");
    !is_array
        && (matches!(name, "text" | "character varying" | "character" | "name") || name.ends_with(".citext"))
}

/// Returns true if the most common elements of a column with the type `type_name` are texts.
fn has_text_elements(type_name: &str) -> bool {
    type_name == "tsvector" || type_name.strip_suffix("[]").is_some_and(is_text)
}

fn redact_column(column: &mut ColumnStatistics, tokens: Option<&Tokens>) {
    column.redacted = true;
    let has_text_elements = has_text_elements(&column.type_name);
    column.slots.retain_mut(|slot| match (slot.kind, tokens) {
        (1 | 2, Some(tokens)) => replace(slot, tokens),
        (4, _) if has_text_elements => {
            let mut elements = Tokens::default();
            elements.add_sorted(slot.values.as_deref().unwrap_or_default());
            elements.assign();
            replace(slot, &elements)
        }
        _ => slot.values.is_none(),
    });
}

/// Replaces the values of `slot` with their tokens. If a value doesn't have a token, removes all values and returns
/// false.
fn replace(slot: &mut Slot, tokens: &Tokens) -> bool {
    let values = slot.values.take().unwrap_or_default();
    slot.values = values.iter().map(|value| tokens.token(value)).collect();
    slot.values.is_some()
}

/// Redacts an object of CREATE STATISTICS. `selected` says for each of its columns whether to redact it.
fn redact_extended(
    object: &mut ExtendedStatistics,
    selected: &[bool],
    tokens: &HashMap<(RelationName, String), Tokens>,
) {
    let columns = object.columns.clone();
    let positions: Vec<usize> = (0..columns.len()).filter(|at| selected[*at]).collect();
    for &at in &positions {
        let tokens = tokens.get(&(object.table.clone(), columns[at].clone()));
        let are_replaced = object.common.iter_mut().all(|common| {
            let Some(value) = common.values[at].as_mut() else { return true };
            match tokens.and_then(|tokens| tokens.token(value)) {
                Some(token) => {
                    *value = token;
                    true
                }
                None => false,
            }
        });
        if !are_replaced {
            object.common.clear();
        }
    }
    for expression in &mut object.expressions {
        if positions.iter().any(|at| columns[*at] == expression.column) {
            redact_column(expression, None);
        }
    }
    // A column name can be an SQL expression here, which may compare a column with a literal value.
    let is_redacted = |name: &String| positions.iter().any(|at| columns[*at] == *name);
    let names = object.columns.iter_mut();
    let names = names.chain(object.expressions.iter_mut().map(|expression| &mut expression.column));
    let names = names.chain(object.distinct.iter_mut().flat_map(|distinct| &mut distinct.columns));
    let names = names.chain(
        object
            .dependencies
            .iter_mut()
            .flat_map(|dependency| dependency.columns.iter_mut().chain([&mut dependency.determines])),
    );
    for name in names.filter(|name| is_redacted(name)) {
        *name = without_literals(name);
    }
}

/// Replaces the text and number literals in a definition, such as an index definition. Definitions that only differ in
/// literals become equal.
#[must_use]
pub fn without_literals(definition: &str) -> String {
    let bytes = definition.as_bytes();
    let mut lexer = SqlLexer::new(bytes, true);
    let mut result = Vec::with_capacity(bytes.len());
    let mut copied = 0;
    while let Some(token) = lexer.token() {
        if matches!(token.kind, TokenKind::Text | TokenKind::Number) {
            result.extend_from_slice(&bytes[copied..lexer.position() - token.text.len()]);
            result.extend_from_slice(LITERAL.as_bytes());
            copied = lexer.position();
        }
    }
    result.extend_from_slice(&bytes[copied..]);
    String::from_utf8_lossy(&result).into_owned()
}

impl RelationStatistics {
    /// Returns the table that this index belongs to. `None` for other relations.
    fn indexed_table(&self) -> Option<RelationName> {
        let name = self.table.clone()?;
        Some(RelationName { schema: self.schema.clone(), name })
    }
}

#[cfg(test)]
mod tests;
