use std::collections::BTreeMap;

use super::*;

fn name(name: &str) -> RelationName {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }
}

fn size(relation: &str, kind: RelationKind, table: Option<&str>, pages: u64, rows: f64) -> RelationSize {
    RelationSize {
        database: "app".to_owned(),
        relation: name(relation),
        kind,
        table: table.map(name),
        pages,
        toast_pages: pages / 10,
        rows,
    }
}

/// Returns a template with a table of 10,000 rows, a table of 3 rows, and a partitioned table.
fn template() -> (TemplateTables, Vec<RelationSize>) {
    let columns = |columns: &[(&str, f64)]| {
        columns.iter().map(|(column, width)| ((*column).to_owned(), *width)).collect::<BTreeMap<_, _>>()
    };
    let index = |table: &str, column: &str| TemplateIndex {
        table: table.to_owned(),
        method: "btree".to_owned(),
        columns: vec![(column.to_owned(), 4.0)],
    };
    let template = TemplateTables {
        columns: BTreeMap::from([
            (name("orders"), columns(&[("id", 4.0), ("note", 32.0)])),
            (name("customers"), columns(&[("id", 8.0), ("email", 20.0)])),
        ]),
        indexes: BTreeMap::from([
            (name("orders_pkey"), index("orders", "id")),
            (name("customers_pkey"), index("customers", "id")),
        ]),
        leaves: BTreeMap::from([(name("events"), vec![name("events_1"), name("events_2")])]),
    };
    let sizes = vec![
        size("orders", RelationKind::Table, None, 100, 10_000.0),
        size("orders_pkey", RelationKind::Index, Some("orders"), 30, 10_000.0),
        size("customers", RelationKind::Table, None, 1, 3.0),
        size("customers_pkey", RelationKind::Index, Some("customers"), 2, 3.0),
        size("events", RelationKind::PartitionedTable, None, 0, 0.0),
        size("events_1", RelationKind::Table, None, 0, 0.0),
        size("events_2", RelationKind::Table, None, 0, 0.0),
    ];
    (template, sizes)
}

fn production(statistics: Option<&Statistics>, rows: &[&str]) -> Result<Production, SizesError> {
    let (template, sizes) = template();
    let rows: Vec<TableRows> = rows.iter().map(|rows| rows.parse().unwrap()).collect();
    Production::new(&template, &sizes, statistics, &rows)
}

fn relation(
    relation: &str,
    kind: RelationKind,
    pages: u32,
    rows: f64,
    parents: &[&str],
) -> RelationStatistics {
    RelationStatistics {
        schema: "public".to_owned(),
        name: relation.to_owned(),
        kind,
        pages,
        analyzed_pages: pages,
        rows,
        all_visible: 0,
        table: None,
        definition: None,
        parents: parents.iter().copied().map(name).collect(),
        generated: BTreeMap::new(),
        height: None,
        columns: Vec::new(),
    }
}

fn statistics(relations: Vec<RelationStatistics>) -> Statistics {
    Statistics {
        format: 1,
        server_version: 150_000,
        taken: 0,
        settings: BTreeMap::new(),
        relations,
        extended: Vec::new(),
    }
}

#[test]
fn files_of_filled_tables_grow_with_rows() {
    let production = production(None, &["orders=10M"]).unwrap();
    let orders = production.table(&name("orders")).unwrap();
    assert_eq!((orders.rows, orders.pages, orders.toast_pages), (Some(1e7), 1e5, 1e4));
    let index = orders.indexes.get(&name("orders_pkey"));
    assert_eq!(index.map(|index| index.pages), Some(30_000.0));
    assert_eq!(production.size_of(&name("orders")), Some((1e7, 1.1e5 * PAGE)));
    assert_eq!(production.assumptions(), ["Files of orders grow in proportion to the rows."]);
    assert_eq!(production.table(&name("customers")).unwrap().rows, None);
    let unknown = self::production(None, &[]).unwrap();
    assert!(["orders", "customers"].iter().all(|table| unknown.table(&name(table)).unwrap().rows.is_none()));
}

#[test]
fn types_of_columns_give_unknown_sizes() {
    let production = production(None, &["customers=1M"]).unwrap();
    let customers = production.table(&name("customers")).unwrap();
    // Each row takes 28 bytes for header and pointer, and 32 bytes for its 28 bytes of values, because of alignment.
    assert!((customers.pages - 1e6 * 60.0 / 8168.0).abs() < 1.0);
    assert!(customers.spread > 1.0);
    // PostgreSQL 15 needs 2,745 pages for a million integers.
    let pages = customers.indexes[&name("customers_pkey")].pages;
    assert!((2600.0..2900.0).contains(&pages), "{pages}");
    assert!(production.assumptions()[0].contains("customers (60.2 MB)"), "{:?}", production.assumptions());
}

#[test]
fn statistics_give_sizes_and_rows_replace_theirs() {
    let statistics = statistics(vec![
        relation("orders", RelationKind::Table, 2000, 1e5, &[]),
        relation("orders_pkey", RelationKind::Index, 500, 1e5, &[]),
    ]);
    let orders =
        |rows: &[&str]| production(Some(&statistics), rows).unwrap().table(&name("orders")).unwrap().clone();
    let table = orders(&[]);
    assert_eq!(
        (table.rows, table.pages, table.indexes[&name("orders_pkey")].pages),
        (Some(1e5), 2000.0, 500.0)
    );
    let table = orders(&["orders=200k"]);
    assert_eq!(
        (table.rows, table.pages, table.indexes[&name("orders_pkey")].pages),
        (Some(2e5), 4000.0, 1000.0)
    );
    let unanalyzed = self::statistics(vec![relation("orders", RelationKind::Table, 2000, -1.0, &[])]);
    let production = production(Some(&unanalyzed), &[]).unwrap();
    let rows = production.table(&name("orders")).unwrap().rows;
    assert_eq!(rows, Some((2000.0 * 8168.0 / 68.0_f64).round()));
}

#[test]
fn partitions_share_the_rows_of_their_table() {
    let given = production(None, &["events=10M", "events_2=1M"]).unwrap();
    let rows = |production: &Production, leaf: &str| production.table(&name(leaf)).unwrap().rows;
    assert_eq!((rows(&given, "events_1"), rows(&given, "events_2")), (Some(9e6), Some(1e6)));
    assert_eq!(given.size_of(&name("events")).map(|(rows, _)| rows), Some(1e7));
    assert_eq!(given.named(None, "events"), [&name("events_1"), &name("events_2")]);
    let statistics = statistics(vec![
        relation("events", RelationKind::PartitionedTable, 0, 0.0, &[]),
        relation("events_1", RelationKind::Table, 10, 1000.0, &["events"]),
        relation("events_2019", RelationKind::Table, 100, 10_000.0, &["events"]),
        relation("events_2020", RelationKind::Table, 100, 10_000.0, &["events"]),
    ]);
    let imported = production(Some(&statistics), &[]).unwrap();
    assert_eq!((rows(&imported, "events_1"), rows(&imported, "events_2")), (Some(11_000.0), Some(10_000.0)));
}

#[test]
fn unknown_tables_are_errors_with_similar_names() {
    let error = |rows: &[&str]| production(None, rows).unwrap_err();
    let unknown = error(&["order=5"]);
    assert_eq!(unknown.to_string(), "the template has no table \"order\"");
    assert_eq!(unknown.hint().as_deref(), Some("Did you mean orders?"));
    assert_eq!(error(&["orders_pkey=5"]).to_string(), "the template has no table orders_pkey");
    assert_eq!(error(&["zzz=5"]).hint(), None);
    assert_eq!(error(&["orders=5", "public.orders=6"]).to_string(), "the rows of orders are given twice");
    let (template, mut sizes) = template();
    sizes.push(RelationSize {
        relation: RelationName { schema: "old".to_owned(), name: "orders".to_owned() },
        ..sizes[0].clone()
    });
    let rows = ["orders=5".parse().unwrap()];
    let ambiguous = Production::new(&template, &sizes, None, &rows).unwrap_err();
    assert_eq!(ambiguous.hint().as_deref(), Some("Write old.orders or public.orders."));
}
