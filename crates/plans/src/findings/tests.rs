use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::fake::{FakePlanner, node, plan, recorded, table};
use crate::{
    BoundStatement, BoundValue, Candidate, CandidateId, Catalog, ExplainError, ForeignKey, PlanFinding,
    PlanMode, Planner, SuiteStatement, analyze,
};

fn catalog() -> Catalog {
    let mut orders = table("orders", 48e6, 524_288, &[("id", -1.0), ("customer_id", 950_000.0)]);
    orders.foreign_keys = vec![ForeignKey {
        name: "orders_customer_id_fkey".to_owned(),
        columns: vec!["customer_id".to_owned()],
        references: ("public".to_owned(), "customers".to_owned()),
        referenced_columns: vec!["id".to_owned()],
    }];
    let customers = table("customers", 1e6, 25_600, &[("id", -1.0)]);
    Catalog {
        settings: BTreeMap::from([("work_mem".to_owned(), "4MB".to_owned())]),
        tables: vec![orders, customers],
        ..Catalog::default()
    }
}

fn found(root: &Value) -> Vec<Problem> {
    let catalog = catalog();
    problems(&plan(root), &Tables::new(&catalog), &[], &Limits::default())
}

fn scan(name: &str, relation: &Value) -> Value {
    let mut properties = json!({"Relation Name": name, "Schema": "public", "Alias": name});
    properties.as_object_mut().unwrap().extend(relation.as_object().unwrap().clone());
    let (cost, rows) = if name == "orders" { (1e6, 48e6) } else { (4e4, 1e6) };
    node("Seq Scan", (0.0, cost), rows, &properties, &[])
}

#[test]
fn sequential_scan_tells_size_and_range() {
    let root = node(
        "Seq Scan",
        (0.0, 1_124_288.0),
        50.0,
        &json!({
            "Relation Name": "orders", "Schema": "public", "Alias": "o", "Filter": "(o.customer_id = 7)",
        }),
        &[],
    );
    let problems = found(&root);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.kind, problem.rows), (PlanFindingKind::SequentialScan, 48e6));
    assert_eq!(
        problem.evidence,
        "The plan reads all 48 million rows of orders (4.29 GB), and keeps about 50 where (o.customer_id = 7)."
    );
    let (low, high) = problem.seconds.unwrap();
    assert!((2.0..4.0).contains(&low) && (20.0..40.0).contains(&high), "{low} {high}");
}

#[test]
fn limit_counts_only_the_read_part() {
    let limit = |cost| node("Limit", (0.0, cost), 10.0, &json!({}), &[scan("orders", &json!({}))]);
    assert_eq!(found(&limit(0.2)), []);
    let catalog = catalog();
    let reads = sequential_reads(&plan(&limit(5e5)), &Tables::new(&catalog));
    assert_eq!((reads[0].table.as_str(), reads[0].bytes), ("orders", 2_147_483_648));
}

#[test]
fn sorts_and_hashes_beyond_their_memory_are_found() {
    let sort = node(
        "Sort",
        (9e5, 9e5),
        1e6,
        &json!({"Sort Key": ["customers.id"]}),
        &[scan("customers", &json!({}))],
    );
    let problems = found(&sort);
    let large: Vec<&Problem> =
        problems.iter().filter(|problem| problem.kind == PlanFindingKind::LargeSort).collect();
    assert_eq!(large.len(), 1);
    assert!(large[0].evidence.contains("88.0 MB, and work_mem is 4.19 MB"), "{}", large[0].evidence);
    let top = node("Limit", (9e5, 9e5), 10.0, &json!({}), &[sort]);
    assert!(!found(&top).iter().any(|problem| problem.kind == PlanFindingKind::LargeSort));
    let hash = node("Hash", (4e4, 4e4), 1e6, &json!({}), &[scan("customers", &json!({}))]);
    assert!(found(&hash).iter().any(|problem| problem.kind == PlanFindingKind::LargeHash));
}

#[test]
fn each_scan_keeps_its_own_rows() {
    let scan = |alias: &str, rows: f64, filter: &str| {
        let properties =
            json!({"Relation Name": "orders", "Schema": "public", "Alias": alias, "Filter": filter});
        node("Seq Scan", (0.0, 1e6), rows, &properties, &[])
    };
    let scans = [scan("e", 600.0, "(e.d = $1)"), scan("f", 20_000.0, "(f.kind = 1)")];
    let problems = found(&node("Append", (0.0, 2e6), 600.0, &json!({}), &scans));
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!(
        problem.evidence,
        "The plan reads all 48 million rows of orders (4.29 GB), and keeps about 600 where (e.d = $1). Another scan of \
         the plan reads orders, too."
    );
    let gather =
        node("Gather", (0.0, 1e6), 1.0, &json!({"Workers Planned": 2}), &[scan("e", 1.0, "(e.d = 1)")]);
    assert!(found(&gather)[0].evidence.contains("keeps about 1 where"), "{:?}", found(&gather));
}

#[test]
fn limit_bounds_sorts_of_parallel_workers() {
    let sort =
        |properties: &Value| node("Sort", (9e5, 9.1e5), 1e6, properties, &[scan("customers", &json!({}))]);
    let sort = sort(&json!({"Sort Key": ["customers.id"]}));
    let gather = |properties: &Value| {
        let mut properties = properties.clone();
        properties["Workers Planned"] = json!(2);
        node("Gather Merge", (9e5, 1e6), 1e6, &properties, std::slice::from_ref(&sort))
    };
    let limit =
        |startup: f64, child: Value| node("Limit", (startup, startup + 10.0), 10.0, &json!({}), &[child]);
    let sorts = |root: &Value| found(root).iter().any(|problem| problem.kind == PlanFindingKind::LargeSort);
    assert!(!sorts(&limit(9e5, gather(&json!({})))));
    // An OFFSET of half of the rows.
    assert!(sorts(&limit(9.5e5, gather(&json!({})))));
    assert!(sorts(&gather(&json!({}))));
    let unique = node("Unique", (9e5, 1e6), 1e6, &json!({}), std::slice::from_ref(&sort));
    assert!(sorts(&limit(9e5, unique)));
}

#[test]
fn nested_loop_counts_its_repetitions() {
    let outer = scan("customers", &json!({"Parent Relationship": "Outer"}));
    let inner = json!({
        "Relation Name": "orders", "Schema": "public", "Alias": "o", "Parent Relationship": "Inner",
        "Index Name": "orders_customer_id_idx",
    });
    let inner = node("Index Scan", (0.5, 200.0), 50.0, &inner, &[]);
    let problems =
        found(&node("Nested Loop", (0.5, 2e8), 5e7, &json!({"Join Type": "Inner"}), &[outer, inner]));
    let nested = problems.iter().find(|problem| problem.kind == PlanFindingKind::NestedLoop).unwrap();
    assert!(nested.evidence.contains("(Index Scan on orders) runs 1 million times, at a cost of 200"));
}

#[test]
fn repeated_and_shared_inputs_are_counted() {
    let inner = scan("customers", &json!({"Parent Relationship": "Outer"}));
    let inner = node("Materialize", (0.0, 4e4), 1e6, &json!({"Parent Relationship": "Inner"}), &[inner]);
    let outer = node("Result", (0.0, 1.0), 500.0, &json!({"Parent Relationship": "Outer"}), &[]);
    let plan = plan(&node("Nested Loop", (0.0, 1e7), 1.0, &json!({}), &[outer, inner]));
    let visits = visits(&plan);
    let loops: Vec<(&str, f64)> =
        visits.iter().map(|visit| (visit.node.kind.as_str(), visit.loops)).collect();
    let expected = [("Nested Loop", 1.0), ("Result", 1.0), ("Materialize", 500.0), ("Seq Scan", 1.0)];
    assert_eq!(loops, expected);
}

/// A planner that exceeds its time limit for every statement. Counts the statements.
struct Slow(usize);

impl Planner for Slow {
    fn explain(
        &mut self,
        _statement: &BoundStatement,
        _mode: PlanMode,
        _visible: &[CandidateId],
        _hidden: &[(String, String)],
    ) -> Result<crate::Plan, ExplainError> {
        self.0 += 1;
        Err(ExplainError::TooSlow { limit: std::time::Duration::from_secs(10) })
    }

    fn create(&mut self, _candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>> {
        Vec::new()
    }

    fn catalog(&mut self) -> Result<Catalog, ExplainError> {
        Ok(catalog())
    }
}

#[test]
fn slow_statements_are_tried_once() {
    let value = |value: &str| SuiteStatement {
        statement: BoundStatement { text: format!("SELECT {value}"), ..BoundStatement::default() },
        normalized: "SELECT ?".to_owned(),
        ..SuiteStatement::default()
    };
    let mut planner = Slow(0);
    let analysis = analyze(&mut planner, &["1", "2", "3"].map(value), &Limits::default());
    assert_eq!((planner.0, analysis.unexplained[0].count), (1, 1));
}

/// A planner that returns a fixed plan for each statement text.
struct Scripted(Vec<(&'static str, Value)>);

impl Planner for Scripted {
    fn explain(
        &mut self,
        statement: &BoundStatement,
        mode: PlanMode,
        _visible: &[CandidateId],
        _hidden: &[(String, String)],
    ) -> Result<crate::Plan, ExplainError> {
        let value = statement.parameters.first().and_then(|parameter| parameter.value.clone());
        let value = value.map_or(String::new(), |value| format!(" {}", String::from_utf8_lossy(&value)));
        let generic = if mode == PlanMode::Generic { "generic " } else { "" };
        let question = format!("{generic}{}{value}", statement.text);
        let answer = self.0.iter().find(|(text, _)| *text == question);
        answer.map(|(_, root)| plan(root)).ok_or(ExplainError::Utility)
    }

    fn create(&mut self, candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>> {
        candidates.iter().map(|_| Err("refused".to_owned())).collect()
    }

    fn catalog(&mut self) -> Result<Catalog, ExplainError> {
        Ok(catalog())
    }
}

fn findings(statements: &[SuiteStatement], answers: Vec<(&'static str, Value)>) -> Vec<PlanFinding> {
    analyze(&mut Scripted(answers), statements, &Limits::default()).findings
}

fn index_scan(condition: &str, filter: &str) -> Value {
    node(
        "Index Scan",
        (0.5, 90_000.0),
        3.0,
        &json!({
            "Relation Name": "orders", "Schema": "public", "Alias": "o", "Index Name": "orders_created_idx",
            "Index Cond": condition, "Filter": filter,
        }),
        &[],
    )
}

#[test]
fn discarded_rows_come_from_the_condition_alone() {
    let scan = index_scan("(o.created > now())", "(o.customer_id = 7)");
    let alone = node("Seq Scan", (0.0, 1.0), 20_000.0, &json!({}), &[]);
    let found = findings(
        &[recorded("q", "test")],
        vec![("q", scan.clone()), ("SELECT FROM public.orders AS o WHERE (o.created > now())", alone)],
    );
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, PlanFindingKind::DiscardingScan);
    assert!(
        found[0].evidence.starts_with("orders_created_idx finds about 20,000 rows of orders"),
        "{found:?}"
    );
    // The planner has no plan for the condition, so its rows can't be estimated and there is no finding.
    assert_eq!(findings(&[recorded("q", "test")], vec![("q", scan)]), []);
}

#[test]
fn discarded_rows_of_joins_come_from_distinct_values() {
    let scan = index_scan("(o.customer_id = c.id)", "(o.status = 'new'::text)");
    let inner = |mut scan: Value| {
        scan["Parent Relationship"] = json!("Inner");
        scan
    };
    let outer = node("Result", (0.0, 1.0), 500.0, &json!({"Parent Relationship": "Outer"}), &[]);
    let join = node("Nested Loop", (0.0, 90_000.0), 1.0, &json!({}), &[outer, inner(scan)]);
    let found = findings(&[recorded("q", "test")], vec![("q", join)]);
    assert_eq!(found.len(), 1);
    assert!((found[0].rows - 500.0 * 48e6 / 950_000.0).abs() < 1.0, "{}", found[0].rows);
}

#[test]
fn worst_value_is_kept_with_all_tests() {
    let value = |value: &str, test: &str| SuiteStatement {
        statement: BoundStatement {
            text: "q".to_owned(),
            parameters: vec![BoundValue { type_oid: 0, format: 0, value: Some(value.as_bytes().to_vec()) }],
            ..BoundStatement::default()
        },
        ..recorded("q", test)
    };
    let scan = |cost| {
        let relation = json!({"Relation Name": "orders", "Schema": "public", "Alias": "o"});
        node("Seq Scan", (0.0, cost), 1.0, &relation, &[])
    };
    let statements = [value("1", "b"), value("2", "a"), value("3", "c")];
    let cheap = node("Result", (0.0, 1.0), 1.0, &json!({}), &[]);
    let found = findings(&statements, vec![("q 1", scan(1e6)), ("q 2", scan(2e6)), ("q 3", cheap)]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].cost, found[0].tests.as_slice()), (2e6, &["a".to_owned(), "b".to_owned()][..]));
}

#[test]
fn prepared_statement_compares_its_generic_plan() {
    let statement = SuiteStatement {
        statement: BoundStatement {
            text: "q = $1".to_owned(),
            parameters: vec![BoundValue { type_oid: 0, format: 0, value: Some(b"1".to_vec()) }],
            prepared_runs: 9,
            ..BoundStatement::default()
        },
        ..recorded("q = $1", "test")
    };
    let result = |cost| node("Result", (0.0, cost), 1.0, &json!({}), &[]);
    let answers = |generic| vec![("q = $1 1", result(100.0)), ("generic q = $1 1", result(generic))];
    let found = findings(std::slice::from_ref(&statement), answers(10_000.0));
    assert_eq!((found[0].kind, found[0].cost_after), (PlanFindingKind::GenericPlan, Some(100.0)));
    assert_eq!(findings(std::slice::from_ref(&statement), answers(9000.0)), []);
    // The server takes a cheaper generic plan, so the problems of this plan count.
    let analysis = analyze(&mut Scripted(answers(90.0)), &[statement], &Limits::default());
    let modes: Vec<PlanMode> = analysis.statements[0].plans.iter().map(|plan| plan.mode).collect();
    assert_eq!(modes, [PlanMode::Custom, PlanMode::Generic]);
}

#[test]
fn offset_grows_only_if_it_varies() {
    let text = |offset: &str, test| SuiteStatement {
        normalized: "q LIMIT ? OFFSET ?".to_owned(),
        ..recorded(&format!("q LIMIT 10 OFFSET {offset}"), test)
    };
    let result = |cost| node("Limit", (0.0, cost), 1.0, &json!({}), &[]);
    let answers = vec![
        ("q LIMIT 10 OFFSET 0", result(2.0)),
        ("q LIMIT 10 OFFSET 10", result(3.0)),
        ("q LIMIT 10 OFFSET 100000", result(9000.0)),
    ];
    assert_eq!(findings(&[text("0", "a")], answers.clone()), []);
    let found = findings(&[text("0", "a"), text("10", "b")], answers);
    assert_eq!(
        (found[0].kind, found[0].cost, found[0].cost_after),
        (PlanFindingKind::GrowingOffset, 9000.0, Some(2.0))
    );
}

#[test]
fn deleted_parent_shows_its_foreign_key() {
    let delete = |operation: &str| {
        node(
            "ModifyTable",
            (0.0, 8.0),
            0.0,
            &json!({
                "Operation": operation, "Relation Name": "customers", "Schema": "public", "Alias": "customers",
            }),
            &[],
        )
    };
    let check = (
        "generic SELECT 1 FROM ONLY public.orders x WHERE x.customer_id = $1 FOR KEY SHARE OF x",
        scan("orders", &json!({})),
    );
    let found = findings(
        &[recorded("DELETE FROM customers WHERE id = 1", "test")],
        vec![("DELETE FROM customers WHERE id = 1", delete("Delete")), check.clone()],
    );
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].cost), (PlanFindingKind::ForeignKeyWithoutIndex, 1e6));
    for (text, count) in
        [("UPDATE customers SET id = 2", 1), ("UPDATE customers SET name = 'x' WHERE id = 2", 0)]
    {
        let found = findings(&[recorded(text, "test")], vec![(text, delete("Update")), check.clone()]);
        assert_eq!(found.len(), count, "{text}");
    }
}

#[test]
fn unexplained_statements_are_grouped_by_cause() {
    let mut planner = FakePlanner::new(vec![table("t", 10.0, 1, &[("a", 1.0)])]);
    let texts = ["VACUUM", "LISTEN x", "one: a", "two: a", "t: a"];
    let statements: Vec<_> = texts.iter().map(|text| recorded(text, "test")).collect();
    let analysis = analyze(&mut planner, &statements, &Limits::default());
    assert_eq!(analysis.statements.len(), 1);
    let causes: Vec<(&str, usize)> =
        analysis.unexplained.iter().map(|cause| (cause.cause.as_str(), cause.count)).collect();
    let only_test = "a table or view does not exist in the template, because only the test made it";
    assert_eq!(causes, [(only_test, 2), ("PostgreSQL cannot explain utility statements", 2)]);
    assert_eq!(analysis.notes.len(), 1);
}
