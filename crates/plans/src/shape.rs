//! Reduces plans to shapes, without numbers and values, so that they can be compared and stored in a baseline in git.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Node, Plan};

/// Minimum number of similar adjacent subtrees to merge. Merging is necessary because the number of scanned partitions
/// depends on the values.
const SIMILAR: usize = 3;

/// The shape of a plan: one line for each node, indented by two spaces for each level.
///
/// A line contains the node type, the join type, and the relation or index that the node reads. It omits costs, row
/// counts, values, aliases, conditions and worker counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape {
    lines: Vec<String>,
}

impl Shape {
    /// Returns the shape of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut lines = Vec::new();
        append(&plan.root, 0, &mut lines);
        Self { lines }
    }

    /// Returns the lines of the shape, outermost node first.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.lines.join("\n"))
    }
}

fn append(node: &Node, depth: usize, lines: &mut Vec<String>) {
    lines.push(format!("{:1$}{2}", "", depth * 2, line(node)));
    let mut rest = node.children.as_slice();
    let may_merge = matches!(node.kind.as_str(), "Append" | "Merge Append" | "BitmapOr" | "BitmapAnd");
    while let [first, others @ ..] = rest {
        let similar = 1 + others.iter().take_while(|other| is_similar(first, other)).count();
        if may_merge && similar >= SIMILAR {
            append_merged(&rest[..similar], depth + 1, lines);
            rest = &rest[similar..];
        } else {
            append(first, depth + 1, lines);
            rest = others;
        }
    }
}

/// Appends one subtree in place of several similar ones. If names differ, keeps their common prefix and adds `*`.
fn append_merged(similar: &[Node], depth: usize, lines: &mut Vec<String>) {
    let mut shapes = similar.iter().map(|node| {
        let mut lines = Vec::new();
        append(node, depth, &mut lines);
        lines
    });
    let Some(mut merged) = shapes.next() else { return };
    for shape in shapes {
        for (line, other) in merged.iter_mut().zip(shape) {
            let words = line.split(' ').zip(other.split(' '));
            *line = words.map(|(word, other)| common(word, other)).collect::<Vec<_>>().join(" ");
        }
    }
    lines.extend(merged);
}

fn common(word: &str, other: &str) -> String {
    if word == other {
        return word.to_owned();
    }
    let word = word.trim_end_matches('*');
    let equal = word.chars().zip(other.chars()).take_while(|(left, right)| left == right);
    equal.map(|(letter, _)| letter).chain(['*']).collect()
}

/// Returns true if two subtrees differ only in the names of relations and indexes.
fn is_similar(left: &Node, right: &Node) -> bool {
    head(left) == head(right)
        && left.text("Relation Name").is_some() == right.text("Relation Name").is_some()
        && left.children.len() == right.children.len()
        && left.children.iter().zip(&right.children).all(|(left, right)| is_similar(left, right))
}

/// Returns the line of a node, such as `Index Scan using orders_pkey on orders`.
fn line(node: &Node) -> String {
    let mut line = head(node);
    let name = |property| node.text(property).map(one_word);
    if let Some(index) = name("Index Name") {
        let preposition = if node.kind == "Bitmap Index Scan" { "on" } else { "using" };
        line.push_str(&format!(" {preposition} {index}"));
    }
    let source = name("Relation Name").or_else(|| name("Function Name")).or_else(|| name("CTE Name"));
    if let Some(source) = source {
        let schema = name("Schema").filter(|schema| !matches!(schema.as_str(), "public" | "pg_catalog"));
        let schema = schema.map_or_else(String::new, |schema| format!("{schema}."));
        line.push_str(&format!(" on {schema}{source}"));
    }
    line
}

/// Returns a name with underscores in place of white space, so that each name is one word of a line.
fn one_word(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_")
}

/// Returns the node type as PostgreSQL's text format prints it, such as `Parallel Hash Left Join`.
fn head(node: &Node) -> String {
    let mut words = Vec::new();
    match node.text("Parent Relationship") {
        Some("InitPlan") => words.push(match node.text("Subplan Name") {
            Some(cte) if cte.starts_with("CTE ") => format!("{cte}:"),
            _ => "InitPlan:".to_owned(),
        }),
        Some("SubPlan") => words.push("SubPlan:".to_owned()),
        _ => {}
    }
    words.extend(node.text("Partial Mode").filter(|mode| *mode != "Simple").map(str::to_owned));
    if node.properties.get("Parallel Aware").and_then(serde_json::Value::as_bool) == Some(true) {
        words.push("Parallel".to_owned());
    }
    words.push(match (node.kind.as_str(), node.text("Strategy"), node.text("Join Type")) {
        ("Aggregate", Some("Sorted"), _) => "GroupAggregate".to_owned(),
        ("Aggregate", Some("Hashed"), _) => "HashAggregate".to_owned(),
        ("Aggregate", Some("Mixed"), _) => "MixedAggregate".to_owned(),
        ("SetOp", Some("Hashed"), _) => "HashSetOp".to_owned(),
        ("ModifyTable", _, _) => node.text("Operation").unwrap_or("ModifyTable").to_owned(),
        (kind, _, Some(join)) if join != "Inner" => match kind.strip_suffix(" Join") {
            Some(method) => format!("{method} {join} Join"),
            None => format!("{kind} {join} Join"),
        },
        (kind, _, _) => kind.to_owned(),
    });
    if node.text("Scan Direction") == Some("Backward") {
        words.push("Backward".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(kind: &str, properties: &Value, children: &[Value]) -> Value {
        let mut node = json!({
            "Node Type": kind, "Startup Cost": 0.0, "Total Cost": 1.0, "Plan Rows": 1, "Plan Width": 4,
        });
        let all = node.as_object_mut().unwrap();
        all.extend(properties.as_object().unwrap().clone());
        all.insert("Plans".to_owned(), json!(children));
        node
    }

    fn shape(plan: &Value) -> String {
        Shape::of(&Plan::parse(&json!([{ "Plan": plan }])).unwrap()).to_string()
    }

    #[test]
    fn shape_has_names_but_no_numbers() {
        let seq =
            json!({"Relation Name": "orders", "Schema": "shop", "Alias": "o_1", "Parallel Aware": true});
        let index = json!({
            "Relation Name": "users", "Schema": "public", "Index Name": "users_pkey",
            "Scan Direction": "Backward", "Index Cond": "(users.id = 7)",
        });
        let join = node(
            "Hash Join",
            &json!({"Join Type": "Left"}),
            &[node("Seq Scan", &seq, &[]), node("Hash", &json!({}), &[node("Index Scan", &index, &[])])],
        );
        let gather = node("Gather", &json!({"Workers Planned": 2}), &[join]);
        let text =
            shape(&node("Aggregate", &json!({"Strategy": "Hashed", "Partial Mode": "Finalize"}), &[gather]));
        let lines = [
            "Finalize HashAggregate",
            "  Gather",
            "    Hash Left Join",
            "      Parallel Seq Scan on shop.orders",
            "      Hash",
            "        Index Scan Backward using users_pkey on users",
        ];
        assert_eq!(text, lines.join("\n"));
    }

    #[test]
    fn similar_partitions_share_a_line() {
        let scan = |month: u32| {
            let properties = json!({"Relation Name": format!("log_2024_{month:02}"), "Index Name": format!("log_{month}_at")});
            node("Index Scan", &properties, &[])
        };
        let merged = "Append\n  Index Scan using log_* on log_2024_0*";
        for months in [1..4, 1..9] {
            assert_eq!(shape(&node("Append", &json!({}), &months.map(scan).collect::<Vec<_>>())), merged);
        }
        let two = shape(&node("Append", &json!({}), &[scan(1), scan(2)]));
        assert_eq!(two.lines().count(), 3);
    }

    #[test]
    fn subplans_have_no_numbers() {
        let plan = node(
            "Result",
            &json!({}),
            &[
                node(
                    "Limit",
                    &json!({"Parent Relationship": "InitPlan", "Subplan Name": "InitPlan 1 (returns $0)"}),
                    &[],
                ),
                node(
                    "Result",
                    &json!({"Parent Relationship": "InitPlan", "Subplan Name": "CTE recent"}),
                    &[],
                ),
                node("CTE Scan", &json!({"CTE Name": "recent", "Alias": "r"}), &[]),
            ],
        );
        assert_eq!(shape(&plan), "Result\n  InitPlan: Limit\n  CTE recent: Result\n  CTE Scan on recent");
    }
}
