//! Collects from a plan what it asks each table: conditions, joins and orders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::conditions::{
    Reference, Test, conjuncts, disjuncts, outer_words, references, single_reference, test, without_alias,
    without_parentheses,
};
use crate::names::sql_name;
use crate::tables::Tables;
use crate::{CatalogTable, Node, Plan};

/// Properties of nodes that are conditions.
const CONDITIONS: &[&str] = &[
    "Filter",
    "Index Cond",
    "Recheck Cond",
    "Hash Cond",
    "Merge Cond",
    "Join Filter",
    "Order By",
    "TID Cond",
];

/// Operators that GIN indexes serve.
const CONTAINMENT: &[&str] = &["@>", "<@", "&&", "@@", "?", "?|", "?&", "@?"];

/// All questions of a plan to one table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Access {
    /// Place of the table in the catalog. For partitions, that of the outermost partitioned table.
    pub(crate) table: usize,
    /// Keys that must equal a value.
    pub(crate) equal: BTreeSet<String>,
    /// Keys that the plan compares by less or greater than.
    pub(crate) ranges: BTreeSet<String>,
    /// Keys whose beginning the plan compares.
    pub(crate) prefixes: BTreeSet<String>,
    /// Keys of containment, with the access method and the operator class, which is empty for the default.
    pub(crate) contained: BTreeSet<(&'static str, String)>,
    /// Keys that must equal one of another table, by the other table's alias.
    pub(crate) joins: BTreeMap<String, BTreeSet<String>>,
    /// Keys of single comparisons that OR connects.
    pub(crate) alternatives: BTreeSet<String>,
    /// Orders of the rows, each as keys with their directions.
    pub(crate) orders: BTreeSet<Vec<String>>,
    /// Conditions without values on NULL or a Boolean column, for partial indexes.
    pub(crate) fixed: BTreeSet<String>,
    /// Columns that the plan needs from the table.
    pub(crate) columns: BTreeSet<String>,
}

/// Returns the questions of a plan to its tables.
pub(crate) fn accesses(plan: &Plan, tables: &Tables<'_>) -> Vec<Access> {
    let mut collector = Collector { tables, accesses: BTreeMap::new() };
    let mut seen = BTreeSet::new();
    for node in plan.nodes().filter(|node| node.kind.contains("Scan")) {
        let (Some(alias), Some(place)) = (node.text("Alias"), tables.of_node(node)) else { continue };
        let root = tables.root(place);
        // One partition stands for all of them. Their aliases differ in the number at the end.
        let stem = alias.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
        if root == place || seen.insert((root, stem.to_owned())) {
            collector.accesses.insert(alias.to_owned(), Access { table: root, ..Access::default() });
        }
    }
    collector.branch(&plan.root, true, false);
    collector.accesses.into_values().collect()
}

struct Collector<'a> {
    tables: &'a Tables<'a>,
    accesses: BTreeMap<String, Access>,
}

impl Collector<'_> {
    fn branch(&mut self, node: &Node, is_root: bool, is_limited: bool) {
        let is_limited = is_limited || node.kind == "Limit";
        self.node(node, is_root, is_limited);
        node.children.iter().for_each(|child| self.branch(child, false, is_limited));
    }

    fn node(&mut self, node: &Node, is_root: bool, is_limited: bool) {
        for property in CONDITIONS {
            for part in node.text(property).map(conjuncts).unwrap_or_default() {
                self.condition(part);
            }
        }
        // Without a limit, the plan reads all rows anyway, and an index would only spare the sort.
        if is_limited {
            self.order(&texts(node, "Sort Key"));
        }
        if node.kind == "Aggregate" {
            for output in texts(node, "Output") {
                self.extreme(output);
            }
        }
        // A scan below other nodes may list all columns of its table, because that is cheaper.
        let skipped = if node.kind.contains("Scan") && !is_root { "Output" } else { "" };
        for (name, value) in &node.properties {
            let listed = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            for text in value.as_str().into_iter().chain(listed).filter(|_| name != skipped) {
                self.columns(text);
            }
        }
    }

    fn columns(&mut self, text: &str) {
        for Reference { alias, column } in references(text) {
            if let Some(access) = self.accesses.get_mut(&alias) {
                access.columns.insert(column);
            }
        }
    }

    fn condition(&mut self, text: &str) {
        let alternatives = disjuncts(text);
        if alternatives.len() > 1 {
            for part in alternatives {
                // AND inside OR: each comparison alone can narrow its part.
                for part in conjuncts(part).into_iter().take(1) {
                    self.alternative(part);
                }
            }
            return;
        }
        match test(text) {
            Some(Test::Comparison { left, operator, right, any }) => {
                self.comparison(left, operator, right, any);
                if let Some(commuted) = commuted(operator).filter(|_| !any) {
                    self.comparison(right, commuted, left, false);
                }
            }
            Some(Test::Null { of, not }) => {
                if let Some((access, alias)) = self.of(of) {
                    access.fixed.insert(format!("({})", without_alias(without_parentheses(text), &alias)));
                    if !not && let Some(reference) = single_reference(of) {
                        access.equal.insert(sql_name(&reference.column));
                    }
                }
            }
            Some(Test::Boolean { of, not }) => {
                if let Some((access, alias)) = self.of(of) {
                    let of = without_alias(without_parentheses(of), &alias);
                    access.equal.insert(of.clone());
                    access.fixed.insert(if not { format!("(NOT {of})") } else { of });
                }
            }
            None => {}
        }
    }

    fn alternative(&mut self, text: &str) {
        let Some(Test::Comparison { left, operator: "=", right, .. }) = test(text) else { return };
        for (left, right) in [(left, right), (right, left)] {
            if let Some((key, alias)) = self.key(left, right)
                && let Some(access) = self.accesses.get_mut(&alias)
            {
                access.alternatives.insert(key);
            }
        }
    }

    fn comparison(&mut self, left: &str, operator: &str, right: &str, any: bool) {
        let Some((key, alias)) = self.key(left, right) else { return };
        let type_name = self.type_name(left);
        let others = references(right);
        let Some(access) = self.accesses.get_mut(&alias) else { return };
        match operator {
            "=" => match others.first() {
                Some(other) if !any => drop(access.joins.entry(other.alias.clone()).or_default().insert(key)),
                _ => drop(access.equal.insert(key)),
            },
            "<" | "<=" | ">" | ">=" if !any => drop(access.ranges.insert(key)),
            "~~" | "~" | "^@" | "~>=~" | "~<~" if !any && has_prefix(operator, right) => {
                access.prefixes.insert(format!("{key} text_pattern_ops"));
            }
            "@>" | "&&" | "<@" | "-|-"
                if type_name.as_deref().is_some_and(|name| name.ends_with("range")) =>
            {
                access.contained.insert(("gist", key));
            }
            _ if CONTAINMENT.contains(&operator) => {
                if type_name.as_deref() == Some("jsonb") && matches!(operator, "@>" | "@@" | "@?") {
                    access.contained.insert(("gin", format!("{key} jsonb_path_ops")));
                }
                access.contained.insert(("gin", key));
            }
            _ => {}
        }
    }

    /// Takes an order if all its keys belong to one table.
    fn order(&mut self, keys: &[&str]) {
        let Some(alias) =
            keys.first().and_then(|key| references(key).into_iter().next()).map(|found| found.alias)
        else {
            return;
        };
        let split: Vec<(&str, &str)> = keys.iter().map(|key| split_direction(key)).collect();
        let mut order = Vec::new();
        for (expression, _) in &split {
            match self.key(expression, "") {
                Some((key, of)) if of == alias => order.push(key),
                _ => return,
            }
        }
        // PostgreSQL reads an index in both directions, so only mixed directions need to be in the index.
        if !split.iter().all(|(_, direction)| matches!(*direction, "" | "DESC") && *direction == split[0].1) {
            for (key, (_, direction)) in order.iter_mut().zip(&split) {
                if !direction.is_empty() {
                    *key = format!("{key} {direction}");
                }
            }
        }
        if let Some(access) = self.accesses.get_mut(&alias) {
            access.orders.insert(order);
        }
    }

    /// Takes `min(column)` and `max(column)` as an order.
    fn extreme(&mut self, output: &str) {
        let text = output.trim_start_matches("PARTIAL ");
        for function in ["min", "max"] {
            if let Some(argument) = text.strip_prefix(function).filter(|rest| rest.starts_with('('))
                && single_reference(argument).is_some()
            {
                self.order(&[argument]);
            }
        }
    }

    /// Returns the text as the key of an index with the alias of its table. `None` if it has columns of no table or of
    /// several tables, or if the table is in `other`, too.
    fn key(&self, text: &str, other: &str) -> Option<(String, String)> {
        let found = references(text);
        let alias = &found.first()?.alias;
        let access = self.accesses.get(alias)?;
        let is_alone = found.iter().all(|reference| reference.alias == *alias && reference.column != "*")
            && references(other).iter().all(|reference| reference.alias != *alias);
        if !is_alone || text.contains("SubPlan") {
            return None;
        }
        Some((key_of(text, alias, self.tables.table(access.table)), alias.clone()))
    }

    fn of(&mut self, text: &str) -> Option<(&mut Access, String)> {
        let (_, alias) = self.key(text, "")?;
        self.accesses.get_mut(&alias).map(|access| (access, alias))
    }

    fn type_name(&self, text: &str) -> Option<String> {
        let reference = single_reference(text)?;
        let table = self.tables.table(self.accesses.get(&reference.alias)?.table);
        let column = table.columns.iter().find(|column| column.name == reference.column)?;
        Some(column.type_name.clone())
    }
}

/// Returns an expression as the key of an index, in the form that `pg_get_indexdef` prints.
fn key_of(text: &str, alias: &str, table: &CatalogTable) -> String {
    if let Some(reference) = single_reference(text) {
        return sql_name(&reference.column);
    }
    // PostgreSQL prints a varchar column as text where an operator of text takes it. No index needs the cast.
    let uncast = text.trim().strip_suffix("::text").and_then(single_reference);
    if let Some(reference) = uncast {
        let mut columns = table.columns.iter().filter(|column| column.name == reference.column);
        if columns.any(|column| column.type_name.starts_with("character varying")) {
            return sql_name(&reference.column);
        }
    }
    let text = without_alias(text.trim(), alias);
    let words = outer_words(&text);
    let is_call = matches!(words.as_slice(), [(name, 0)] if text[name.len()..].starts_with('('));
    let has_collation = words.iter().any(|(word, _)| *word == "COLLATE");
    if is_call || has_collation { text } else { format!("({text})") }
}

/// Splits a sort key into its expression and its direction, which is empty for the default.
fn split_direction(key: &str) -> (&str, &str) {
    let mut expression = key;
    for ending in [" NULLS FIRST", " NULLS LAST", " DESC"] {
        expression = expression.strip_suffix(ending).unwrap_or(expression);
    }
    (expression, key[expression.len()..].trim())
}

/// Returns the operator that compares swapped operands.
fn commuted(operator: &str) -> Option<&str> {
    match operator {
        "=" | "&&" => Some(operator),
        "<" => Some(">"),
        ">" => Some("<"),
        "<=" => Some(">="),
        ">=" => Some("<="),
        "@>" => Some("<@"),
        "<@" => Some("@>"),
        _ => None,
    }
}

/// Returns true if all texts that match a pattern begin with one text.
fn has_prefix(operator: &str, pattern: &str) -> bool {
    let pattern = pattern.trim_start_matches('(').trim_start_matches('\'');
    match operator {
        "~~" => !pattern.starts_with(['%', '_', '$']),
        "~" => pattern.starts_with('^') && !pattern.starts_with("^["),
        _ => true,
    }
}

fn texts<'a>(node: &'a Node, property: &str) -> Vec<&'a str> {
    let value = node.properties.get(property).and_then(Value::as_array);
    value.into_iter().flatten().filter_map(Value::as_str).collect()
}
