//! Fakes a planner for unit tests, which only supports sequential scans and B-trees that are searched for equal values.
//!
//! Its statements have the form `table: a b`, which means a search in `table` with equality conditions on columns `a`
//! and `b`.

use serde_json::{Value, json};

use crate::definition::IndexDefinition;
use crate::{
    BoundStatement, Candidate, CandidateId, Catalog, CatalogColumn, CatalogIndex, CatalogTable, ExplainError,
    Plan, PlanMode, Planner, RelationKind, SuiteStatement,
};

/// Returns a plan from a tree of nodes that [`node`] made.
pub(crate) fn plan(root: &Value) -> Plan {
    Plan::parse(&json!([{ "Plan": root }])).unwrap()
}

/// Returns a plan node with costs, row count, a fixed width, and further properties.
pub(crate) fn node(kind: &str, cost: (f64, f64), rows: f64, properties: &Value, children: &[Value]) -> Value {
    let mut node = json!({
        "Node Type": kind, "Startup Cost": cost.0, "Total Cost": cost.1, "Plan Rows": rows, "Plan Width": 64,
    });
    let all = node.as_object_mut().unwrap();
    all.extend(properties.as_object().unwrap().clone());
    all.insert("Plans".to_owned(), json!(children));
    node
}

/// Returns a table with columns. Each column has a name and a number of distinct values.
pub(crate) fn table(name: &str, rows: f64, pages: u64, columns: &[(&str, f64)]) -> CatalogTable {
    let column = |(name, distinct): &(&str, f64)| CatalogColumn {
        name: (*name).to_owned(),
        type_name: "integer".to_owned(),
        distinct: Some(*distinct),
        null_fraction: 0.0,
    };
    CatalogTable {
        schema: "public".to_owned(),
        name: name.to_owned(),
        kind: RelationKind::Table,
        parent: None,
        pages,
        rows,
        columns: columns.iter().map(column).collect(),
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
    }
}

/// Returns an index that no constraint needs, so it only serves searches.
pub(crate) fn index(name: &str, table: &str, keys: &str) -> CatalogIndex {
    CatalogIndex {
        schema: "public".to_owned(),
        name: name.to_owned(),
        definition: format!("CREATE INDEX {name} ON public.{table} USING btree ({keys})"),
        parent: None,
        unique: false,
        constraint: false,
        pages: 100,
        rows: -1.0,
    }
}

/// Returns a statement that one test ran.
pub(crate) fn recorded(text: &str, name: &str) -> SuiteStatement {
    SuiteStatement {
        statement: BoundStatement { text: text.to_owned(), ..BoundStatement::default() },
        normalized: text.to_owned(),
        runs: 1,
        tests: vec![name.to_owned()],
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakePlanner {
    pub(crate) catalog: Catalog,
    /// All candidates created so far.
    pub(crate) created: Vec<Candidate>,
    /// Number of EXPLAINs so far.
    pub(crate) explains: usize,
}

impl FakePlanner {
    pub(crate) fn new(tables: Vec<CatalogTable>) -> Self {
        Self { catalog: Catalog { tables, ..Catalog::default() }, ..Self::default() }
    }

    /// Returns the cost of a search, and the index it uses. `None` stands for a sequential scan.
    fn best(
        &self,
        table: &CatalogTable,
        columns: &[&str],
        visible: &[CandidateId],
        hidden: &[(String, String)],
    ) -> (f64, Option<String>) {
        let scan = (report::as_f64(table.pages) + table.rows * 0.01, None);
        let existing =
            table.indexes.iter().filter(|index| hidden.iter().all(|(_, name)| *name != index.name));
        let existing = existing.map(|index| (index.name.clone(), index.definition.clone()));
        let candidates = visible.iter().map(|id| (id.index_name(), self.created[id.0].definition.clone()));
        let costs = existing.chain(candidates).filter_map(|(name, definition)| {
            let index = IndexDefinition::parse(&table.schema, &table.name, &definition)?;
            let mine = table.name == index.table && definition.contains(&format!(".{} ", table.name));
            let matched = index.keys.iter().take_while(|key| columns.contains(&key.as_str())).count();
            let distinct = |key: &String| {
                table
                    .columns
                    .iter()
                    .find(|column| column.name == *key)
                    .and_then(|column| column.distinct)
                    .unwrap()
            };
            let found = table.rows / index.keys[..matched].iter().map(distinct).product::<f64>();
            let width = report::as_f64(index.keys.len());
            (mine && matched > 0).then_some((8.0 + 4.0 * found.max(1.0) + 0.1 * width, Some(name)))
        });
        costs.fold(scan, |best, other| if other.0 < best.0 { other } else { best })
    }
}

impl Planner for FakePlanner {
    fn explain(
        &mut self,
        statement: &BoundStatement,
        _mode: PlanMode,
        visible: &[CandidateId],
        hidden: &[(String, String)],
    ) -> Result<Plan, ExplainError> {
        self.explains += 1;
        let (name, columns) = statement.text.split_once(": ").ok_or(ExplainError::Utility)?;
        let table = self.catalog.tables.iter().find(|table| table.name == name).ok_or_else(|| {
            ExplainError::Refused {
                code: "42P01".to_owned(),
                message: format!("relation \"{name}\" does not exist"),
            }
        })?;
        let columns: Vec<&str> = columns.split(' ').collect();
        let (cost, index) = self.best(table, &columns, visible, hidden);
        let filter: Vec<String> = columns.iter().map(|column| format!("({name}.{column} = 1)")).collect();
        let filter = format!("({})", filter.join(" AND "));
        let mut properties =
            json!({"Relation Name": name, "Schema": "public", "Alias": name, "Filter": filter});
        let kind = if index.is_some() { "Index Scan" } else { "Seq Scan" };
        if let Some(index) = index {
            properties["Index Name"] = json!(index);
        }
        Ok(plan(&node(kind, (0.0, cost), 1.0, &properties, &[])))
    }

    fn create(&mut self, candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>> {
        let create = |candidate: &Candidate| {
            if candidate.definition.contains("refused") {
                return Err("no such operator class".to_owned());
            }
            self.created.push(candidate.clone());
            Ok((CandidateId(self.created.len() - 1), 1_000_000))
        };
        candidates.iter().map(create).collect()
    }

    fn catalog(&mut self) -> Result<Catalog, ExplainError> {
        Ok(self.catalog.clone())
    }
}
