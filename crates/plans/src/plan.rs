//! Parses the output of `EXPLAIN (FORMAT JSON)` into a tree of plan nodes.

use serde_json::{Map, Value};

/// The plan of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The outermost node.
    pub root: Node,
}

/// A plan node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Node type as PostgreSQL calls it, such as `Seq Scan`.
    pub kind: String,
    /// Estimated cost until the first row, in the planner's units.
    pub startup_cost: f64,
    /// Estimated cost until the last row, in the planner's units.
    pub total_cost: f64,
    /// Estimated number of rows.
    pub rows: f64,
    /// Estimated width of a row in bytes.
    pub width: f64,
    /// All other properties under PostgreSQL's names, such as `Relation Name`, `Schema`, `Alias`, `Index Name`, `Index
    /// Cond` and `Filter`.
    pub properties: Map<String, Value>,
    /// Nodes whose rows this node reads, in PostgreSQL's order.
    pub children: Vec<Node>,
}

/// Error for a text that isn't a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server's plan lacks {path}")]
pub struct PlanError {
    /// Path of the property that is missing or has the wrong type.
    pub path: String,
}

impl Plan {
    /// Parses the output of `EXPLAIN (FORMAT JSON)`: an array whose only element is an object with the property `Plan`.
    ///
    /// # Errors
    ///
    /// Returns an error if a property is missing or has the wrong type.
    pub fn parse(explained: &Value) -> Result<Self, PlanError> {
        let plan = explained.get(0).and_then(|first| first.get("Plan"));
        let plan =
            plan.and_then(Value::as_object).ok_or_else(|| PlanError { path: "[0].Plan".to_owned() })?;
        Ok(Self { root: Node::parse(plan, "Plan")? })
    }

    /// Returns all nodes, each before its children.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let mut rest = vec![&self.root];
        std::iter::from_fn(move || {
            let node = rest.pop()?;
            rest.extend(node.children.iter().rev());
            Some(node)
        })
    }
}

impl Node {
    fn parse(plan: &Map<String, Value>, path: &str) -> Result<Self, PlanError> {
        let at = |name: &str| PlanError { path: format!("{path}.{name}") };
        let number = |name: &str| plan.get(name).and_then(Value::as_f64).ok_or_else(|| at(name));
        let kind = plan.get("Node Type").and_then(Value::as_str).ok_or_else(|| at("Node Type"))?;
        let children = match plan.get("Plans") {
            Some(Value::Array(children)) => children.as_slice(),
            Some(_) => return Err(at("Plans")),
            None => &[],
        };
        let children = children.iter().enumerate().map(|(index, child)| {
            let path = format!("{path}.Plans[{index}]");
            let child = child.as_object().ok_or_else(|| PlanError { path: path.clone() })?;
            Self::parse(child, &path)
        });
        Ok(Self {
            kind: kind.to_owned(),
            startup_cost: number("Startup Cost")?,
            total_cost: number("Total Cost")?,
            rows: number("Plan Rows")?,
            width: number("Plan Width")?,
            children: children.collect::<Result<_, _>>()?,
            properties: plan
                .iter()
                .filter(|(name, _)| !PARSED.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    /// Returns a string property, such as `Relation Name`.
    #[must_use]
    pub fn text(&self, property: &str) -> Option<&str> {
        self.properties.get(property).and_then(Value::as_str)
    }
}

/// Properties that [`Node`] has a separate field for.
const PARSED: &[&str] = &["Node Type", "Startup Cost", "Total Cost", "Plan Rows", "Plan Width", "Plans"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(kind: &str, children: &[Value]) -> Value {
        json!({
            "Node Type": kind, "Startup Cost": 0.5, "Total Cost": 12.25, "Plan Rows": 3, "Plan Width": 8,
            "Alias": "a", "Plans": children,
        })
    }

    #[test]
    fn tree_is_read_with_its_properties() {
        let scans = [node("Index Scan", &[]), node("Seq Scan", &[])];
        let plan = Plan::parse(&json!([{ "Plan": node("Hash Join", &scans) }])).unwrap();
        let kinds: Vec<&str> = plan.nodes().map(|node| node.kind.as_str()).collect();
        assert_eq!(kinds, ["Hash Join", "Index Scan", "Seq Scan"]);
        assert_eq!((plan.root.total_cost, plan.root.text("Alias")), (12.25, Some("a")));
        assert_eq!(plan.root.properties.len(), 1);
    }

    #[test]
    fn wrong_shape_is_an_error_with_its_path() {
        let mut scan = node("Seq Scan", &[]);
        scan["Plan Rows"] = json!("many");
        let error = Plan::parse(&json!([{ "Plan": node("Limit", &[scan]) }])).unwrap_err();
        assert_eq!(error.to_string(), "the server's plan lacks Plan.Plans[0].Plan Rows");
        assert!(Plan::parse(&json!({})).is_err());
    }
}
