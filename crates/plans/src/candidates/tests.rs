use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fake::{FakePlanner, index, node, plan, recorded, table};
use crate::{BoundStatement, CandidateId, Catalog, CatalogColumn, Plan, PlanMode, Planner, analyze};

const COLUMNS: &[(&str, f64)] = &[("a", 1000.0), ("b", 200.0), ("c", 50.0), ("d", 10.0), ("e", 3.0)];

fn large(name: &str) -> crate::CatalogTable {
    table(name, 1e6, 20_000, COLUMNS)
}

fn drafts_of(root: &Value, columns: &[(&str, &str)]) -> Vec<String> {
    let column = |(name, type_name): &(&str, &str)| CatalogColumn {
        name: (*name).to_owned(),
        type_name: (*type_name).to_owned(),
        distinct: Some(100.0),
        null_fraction: 0.0,
    };
    let mut table = table("t", 1e6, 20_000, &[]);
    table.columns = columns.iter().map(column).collect();
    let catalog = Catalog { tables: vec![table], ..Catalog::default() };
    let tables = Tables::new(&catalog);
    let accesses = accesses(&plan(root), &tables);
    let found = accesses
        .iter()
        .flat_map(|access| drafts::drafts(access, &tables, &Frequencies::new(), &Limits::default()));
    found.map(|draft| draft.to_string().replace("CREATE INDEX ON t ", "")).collect()
}

fn scan(filter: &str) -> Value {
    let properties = json!({"Relation Name": "t", "Schema": "public", "Alias": "x", "Filter": filter});
    node("Seq Scan", (0.0, 1e5), 1.0, &properties, &[])
}

fn sorted(keys: &[&str], child: Value) -> Value {
    let sort = node("Sort", (1e5, 1e5), 1.0, &json!({"Sort Key": keys}), &[child]);
    node("Limit", (1e5, 1e5), 1.0, &json!({}), &[sort])
}

#[test]
fn equality_comes_before_range_and_order() {
    let types = [("a", "integer"), ("b", "integer"), ("at", "date"), ("Z", "integer")];
    let found = drafts_of(&scan("((x.at > '2024-01-01'::date) AND (x.a = 1) AND (2 = x.b))"), &types);
    assert!(found.contains(&"(a, b, at)".to_owned()), "{found:?}");
    let found = drafts_of(&sorted(&["x.at DESC", "x.\"Z\" DESC"], scan("(x.a = 1)")), &types);
    assert!(found.contains(&"(a, at, \"Z\")".to_owned()), "{found:?}");
    let found = drafts_of(&sorted(&["x.at DESC", "x.b"], scan("(x.a = 1)")), &types);
    assert!(found.contains(&"(a, at DESC, b)".to_owned()), "{found:?}");
    let found = drafts_of(&sorted(&["x.at DESC NULLS LAST"], scan("(x.a = 1)")), &types);
    assert!(found.contains(&"(a, at DESC NULLS LAST)".to_owned()), "{found:?}");
}

#[test]
fn operators_choose_the_access_method() {
    let types = [
        ("tags", "integer[]"),
        ("data", "jsonb"),
        ("during", "tstzrange"),
        ("name", "character varying(40)"),
        ("body", "tsvector"),
        ("flag", "boolean"),
        ("gone", "date"),
    ];
    for (filter, index) in [
        ("(x.tags && '{1}'::integer[])", "USING gin (tags)"),
        ("(x.data @> '{}'::jsonb)", "USING gin (data jsonb_path_ops)"),
        ("(x.data ? 'k'::text)", "USING gin (data)"),
        ("(x.during @> '2024-01-01 00:00:00+00'::timestamp with time zone)", "USING gist (during)"),
        ("(x.body @@ '''a'''::tsquery)", "USING gin (body)"),
        (
            "(to_tsvector('simple'::regconfig, (x.name)::text) @@ '''a'''::tsquery)",
            "USING gin (to_tsvector('simple'::regconfig, (name)::text))",
        ),
        ("((x.name)::text ~~ 'ab%'::text)", "(name text_pattern_ops)"),
        ("((x.name)::text = 'ab'::text)", "(name)"),
        ("(lower((x.name)::text) = 'ab'::text)", "(lower((name)::text))"),
        ("((x.data ->> 'k'::text) = 'v'::text)", "(((data ->> 'k'::text)))"),
        ("(x.tags = ANY ('{}'::integer[]))", "(tags)"),
        ("((x.name)::text > 'ab'::text)", "(name)"),
        ("((x.flag) AND ((x.name)::text = 'ab'::text))", "(name) WHERE flag"),
        ("((x.gone IS NULL) AND ((x.name)::text = 'ab'::text))", "(name) WHERE (gone IS NULL)"),
    ] {
        let found = drafts_of(&scan(filter), &types);
        assert!(found.contains(&index.to_owned()), "{filter}: {found:?}");
    }
    for filter in ["((x.name)::text ~~ '%ab'::text)", "(x.tags <> '{}'::integer[])", "(random() > 0.5)"] {
        assert_eq!(drafts_of(&scan(filter), &types), Vec::<String>::new(), "{filter}");
    }
}

#[test]
fn index_on_a_value_is_no_candidate() {
    let types = [("pt", "point"), ("ip", "inet"), ("big", "integer"), ("name", "text")];
    for (order, expected) in [
        ("(x.pt <-> '(1,1)'::point)", &["USING gist (pt)"][..]),
        ("abs((x.big - 5))", &[]),
        ("similarity(x.name, 'foo'::text) DESC", &[]),
        ("(COALESCE(x.big, 0))", &["(((COALESCE(big, 0))))"]),
    ] {
        assert_eq!(drafts_of(&sorted(&[order], scan("")), &types), expected, "{order}");
    }
    for (filter, expected) in [
        ("((x.pt <-> '(1,1)'::point) < '5'::double precision)", &[][..]),
        ("(x.pt <@ '(5,5),(1,1)'::box)", &["USING gist (pt)"]),
        ("(x.ip << '10.0.5.0/24'::inet)", &["(ip)"]),
        ("((x.big IS NULL) OR (x.big > 990))", &["(big)"]),
    ] {
        assert_eq!(drafts_of(&scan(filter), &types), expected, "{filter}");
    }
}

#[test]
fn joins_and_alternatives_become_candidates() {
    let types = [("a", "integer"), ("b", "integer")];
    let join = |scan: Value| {
        let other = json!({"Relation Name": "u", "Schema": "public", "Alias": "u"});
        let other = node("Seq Scan", (0.0, 10.0), 1.0, &other, &[]);
        node("Hash Join", (0.0, 1e5), 1.0, &json!({"Hash Cond": "(u.id = x.b)"}), &[other, scan])
    };
    let found = drafts_of(&join(scan("(x.a = 1)")), &types);
    assert!(found.contains(&"(b)".to_owned()) && found.contains(&"(b, a)".to_owned()), "{found:?}");
    assert_eq!(drafts_of(&scan("((x.a = 1) OR (x.b = 2))"), &types), ["(a)", "(b)"]);
    let max = node(
        "Aggregate",
        (0.0, 1e5),
        1.0,
        &json!({"Strategy": "Plain", "Output": ["max(x.b)"]}),
        &[scan("")],
    );
    assert_eq!(drafts_of(&max, &types), ["(b)"]);
}

#[test]
fn one_wide_index_replaces_two() {
    let mut planner = FakePlanner::new(vec![large("t")]);
    let statements = [recorded("t: a", "one"), recorded("t: a b", "two"), recorded("t: d", "three")];
    let analysis = analyze(&mut planner, &statements, &Limits::default());
    let found: Vec<&str> = analysis.suggestions.iter().map(|suggestion| suggestion.sql.as_str()).collect();
    assert_eq!(found, ["CREATE INDEX ON t (a, b)"]);
    assert_eq!(analysis.suggestions[0].gains.len(), 2);
}

#[test]
fn existing_part_of_a_suggestion_is_superfluous() {
    let mut table = large("t");
    table.indexes = vec![index("t_d", "t", "d"), index("t_e", "t", "e"), index("t_c", "t", "c")];
    table.indexes[1].unique = true;
    let mut planner = FakePlanner::new(vec![table]);
    let statements = [recorded("t: d c", "one"), recorded("t: d", "two")];
    let analysis = analyze(&mut planner, &statements, &Limits { index_gain: 0.3, ..Limits::default() });
    let suggestion = &analysis.suggestions[0];
    assert_eq!(suggestion.sql, "CREATE INDEX ON t (d, c)");
    assert_eq!(suggestion.replaces, ["t_d"]);
    assert_eq!(analysis.unused, ["t_c"]);
}

#[test]
fn unused_indexes_spare_constraints_and_foreign_keys() {
    let mut table = large("t");
    table.indexes = ["a", "b", "c", "d", "e"].map(|key| index(&format!("t_{key}"), "t", key)).to_vec();
    table.indexes[2].constraint = true;
    table.foreign_keys = vec![crate::ForeignKey {
        name: "t_d_fkey".to_owned(),
        columns: vec!["d".to_owned()],
        references: ("public".to_owned(), "u".to_owned()),
        referenced_columns: vec!["id".to_owned()],
    }];
    let mut other = large("u");
    other.indexes = vec![index("u_a", "u", "a")];
    let mut planner = FakePlanner::new(vec![table, other]);
    let analysis = analyze(&mut planner, &[recorded("t: a", "one")], &Limits::default());
    assert_eq!(analysis.unused, ["t_b", "t_e"]);
}

#[test]
fn work_is_bounded() {
    let mut planner = FakePlanner::new(vec![large("t")]);
    let statements: Vec<_> =
        ["t: a b", "t: b c", "t: c a", "t: c d"].map(|text| recorded(text, "one")).to_vec();
    let limits = Limits { explains: 6, candidates: 4, ..Limits::default() };
    let analysis = analyze(&mut planner, &statements, &limits);
    assert!(planner.explains <= 4 + 6, "{}", planner.explains);
    assert!(planner.created.len() <= 4);
    assert!(analysis.notes.iter().any(|note| note.contains("first 4 of")), "{:?}", analysis.notes);
    assert!(analysis.notes.iter().any(|note| note.contains("6 EXPLAINs")), "{:?}", analysis.notes);
}

fn subsets() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2, 3, 4], 1..4).prop_shuffle(), 0..8)
}

fn names(columns: &[usize]) -> Vec<&'static str> {
    columns.iter().map(|column| COLUMNS[*column].0).collect()
}

fn cost(planner: &mut FakePlanner, text: &str, visible: &[CandidateId]) -> f64 {
    let statement = BoundStatement { text: text.to_owned(), ..BoundStatement::default() };
    planner.explain(&statement, PlanMode::Custom, visible, &[]).map_or(0.0, |plan: Plan| plan.root.total_cost)
}

proptest! {
    #[test]
    fn suggestions_are_new_useful_and_minimal(queries in subsets(), existing in subsets()) {
        let mut table = large("t");
        let indexes = existing.iter().enumerate();
        table.indexes =
            indexes.map(|(number, keys)| index(&format!("t_{number}"), "t", &names(keys).join(", "))).collect();
        let known = drafts::existing(&table);
        let mut planner = FakePlanner::new(vec![table]);
        let texts: Vec<String> = queries.iter().map(|columns| format!("t: {}", names(columns).join(" "))).collect();
        let statements: Vec<_> = texts.iter().map(|text| recorded(text, "test")).collect();
        let analysis = analyze(&mut planner, &statements, &Limits::default());
        let place = |planner: &FakePlanner, sql: &str| {
            let keys = sql.trim_start_matches("CREATE INDEX ON t ");
            let found = planner.created.iter().position(|created| created.definition.ends_with(&format!("btree {keys}")));
            CandidateId(found.unwrap())
        };
        let all: Vec<CandidateId> =
            analysis.suggestions.iter().map(|suggestion| place(&planner, &suggestion.sql)).collect();
        for (suggestion, id) in analysis.suggestions.iter().zip(&all) {
            let definition = IndexDefinition::parse("public", "t", &planner.created[id.0].definition).unwrap();
            prop_assert!(!known.iter().any(|index| definition.is_part_of(index)), "{} exists", suggestion.sql);
            prop_assert!(!suggestion.gains.is_empty(), "{} is not used", suggestion.sql);
            let rest: Vec<CandidateId> = all.iter().filter(|other| *other != id).copied().collect();
            let is_needed = texts.iter().any(|text| {
                let (with, without) = (cost(&mut planner, text, &all), cost(&mut planner, text, &rest));
                without > with * 1.05
            });
            prop_assert!(is_needed, "{} is not needed", suggestion.sql);
        }
    }
}
