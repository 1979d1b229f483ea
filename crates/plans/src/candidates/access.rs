//! Collects the conditions, joins and sort orders that a plan applies to each table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::conditions::{
    Reference, Test, conjuncts, disjuncts, has_value, outer_words, references, single_reference, test,
    without_alias, without_parentheses,
};
use crate::names::sql_name;
use crate::tables::Tables;
use crate::{CatalogTable, Node, Plan};

/// Plan node properties that contain conditions.
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

/// Operators that GIN indexes support.
const CONTAINMENT: &[&str] = &["@>", "<@", "&&", "@@", "?", "?|", "?&", "@?"];

/// Types whose operators the access method `gist` supports.
const GEOMETRIC: &[&str] = &["point", "box", "polygon", "circle"];

/// How a plan accesses one table. Keys are columns or expressions, in the form that an index definition uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Access {
    /// Place of the table in the catalog. For a partition, the place of its outermost partitioned table.
    pub(crate) table: usize,
    /// Keys that are compared with a value for equality.
    pub(crate) equal: BTreeSet<String>,
    /// Keys that are compared with a value by `<`, `<=`, `>` or `>=`.
    pub(crate) ranges: BTreeSet<String>,
    /// Keys whose beginning is compared with a text.
    pub(crate) prefixes: BTreeSet<String>,
    /// Access method and key for each containment condition and each order by distance. The key includes an operator class
    /// unless it is the default.
    pub(crate) contained: BTreeSet<(&'static str, String)>,
    /// Keys that are compared with another table for equality, by the other table's alias.
    pub(crate) joins: BTreeMap<String, BTreeSet<String>>,
    /// Keys of the conditions that OR connects.
    pub(crate) alternatives: BTreeSet<String>,
    /// Sort orders, each as a list of keys with their directions.
    pub(crate) orders: BTreeSet<Vec<String>>,
    /// Conditions without parameters that suit partial indexes: those on NULL or on a Boolean column.
    pub(crate) fixed: BTreeSet<String>,
    /// Columns that the plan needs from the table.
    pub(crate) columns: BTreeSet<String>,
}

/// Returns how a plan accesses its tables.
pub(crate) fn accesses(plan: &Plan, tables: &Tables<'_>) -> Vec<Access> {
    let mut collector = Collector { tables, accesses: BTreeMap::new() };
    let mut seen = BTreeSet::new();
    for node in plan.nodes().filter(|node| node.kind.contains("Scan")) {
        let (Some(alias), Some(place)) = (node.text("Alias"), tables.of_node(node)) else { continue };
        let root = tables.root(place);
        // One partition represents all partitions, because their aliases differ only in the number at the end.
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
        // Without a LIMIT, the plan reads all rows anyway, so an index would only save the sort.
        if is_limited {
            self.order(&texts(node, "Sort Key"));
        }
        if node.kind == "Aggregate" {
            for output in texts(node, "Output") {
                self.extreme(output);
            }
        }
        // A scan below other nodes may output all table columns because that is cheaper, so its output doesn't show
        // what is needed.
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
                // In an AND inside OR, each comparison alone narrows its part, so the first one suffices.
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
        let (left, right) = match test(text) {
            Some(Test::Comparison { left, operator: "=" | "<" | "<=" | ">" | ">=", right, .. }) => {
                (left, right)
            }
            Some(Test::Null { of, .. }) => (of, ""),
            _ => return,
        };
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
            "<" | "<=" | ">" | ">=" if !any && distance(left).is_none() => drop(access.ranges.insert(key)),
            // PostgreSQL turns these conditions on network addresses into a range.
            "<<" | "<<=" if matches!(type_name.as_deref(), Some("inet" | "cidr")) => {
                access.ranges.insert(key);
            }
            _ if type_name.as_deref().is_some_and(|name| GEOMETRIC.contains(&name)) => {
                access.contained.insert(("gist", key));
            }
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

    /// Records a sort order if all its keys belong to the same table.
    fn order(&mut self, keys: &[&str]) {
        let Some(alias) =
            keys.first().and_then(|key| references(key).into_iter().next()).map(|found| found.alias)
        else {
            return;
        };
        let split: Vec<(&str, &str)> = keys.iter().map(|key| split_direction(key)).collect();
        if let Some((left, right)) = split.first().and_then(|(first, _)| distance(first)) {
            for (left, right) in [(left, right), (right, left)] {
                if let Some((key, _)) = self.key(left, right)
                    && let Some(access) = self.accesses.get_mut(&alias)
                {
                    access.contained.insert(("gist", key));
                }
            }
            return;
        }
        let mut order = Vec::new();
        for (expression, _) in &split {
            // An index on such an expression serves only statements with the same value.
            if has_value(expression) {
                return;
            }
            match self.key(expression, "") {
                Some((key, of)) if of == alias => order.push(key),
                _ => return,
            }
        }
        // PostgreSQL can read an index backwards, so the index only needs the directions if they are mixed.
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

    /// Records `min(column)` and `max(column)` as a sort order.
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

    /// Returns the text as an index key, and the alias of its table. `None` if the text refers to no table or to
    /// several, or if `other` refers to the table, too.
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

/// Returns an expression as an index key, in the form that `pg_get_indexdef` prints.
fn key_of(text: &str, alias: &str, table: &CatalogTable) -> String {
    if let Some(reference) = single_reference(text) {
        return sql_name(&reference.column);
    }
    // PostgreSQL casts a varchar column to text where an operator requires text. An index doesn't need this cast.
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

/// Returns the operands of a distance, such as `place <-> '(1,1)'::point`.
fn distance(expression: &str) -> Option<(&str, &str)> {
    match test(expression) {
        Some(Test::Comparison { left, operator, right, any: false }) => {
            is_distance(operator).then_some((left, right))
        }
        _ => None,
    }
}

/// Returns true for operators such as `<->`.
fn is_distance(operator: &str) -> bool {
    operator.len() > 2 && operator.starts_with('<') && operator.ends_with('>')
}

/// Splits a sort key into its expression and its direction. The direction is empty if it is the default.
fn split_direction(key: &str) -> (&str, &str) {
    let mut expression = key;
    for ending in [" NULLS FIRST", " NULLS LAST", " DESC"] {
        expression = expression.strip_suffix(ending).unwrap_or(expression);
    }
    (expression, key[expression.len()..].trim())
}

/// Returns the operator for swapped operands, such as `>` for `<`.
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

/// Returns true if all texts that match a pattern begin with the same prefix.
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
