use std::collections::BTreeMap;

use super::*;
use crate::{CommonCombination, Dependency, RelationKind};

fn column(name: &str, type_name: &str, slots: &[(i16, &[&str])]) -> ColumnStatistics {
    let slots = slots.iter().map(|(kind, values)| {
        let extra = if *kind == 4 { 2 } else { 0 };
        let numbers = matches!(kind, 1 | 4).then(|| vec![0.01; values.len() + extra]);
        Slot { kind: *kind, numbers, values: Some(values.iter().map(|&value| value.to_owned()).collect()) }
    });
    ColumnStatistics {
        column: name.to_owned(),
        type_name: type_name.to_owned(),
        width: 8,
        distinct: -1.0,
        slots: slots.collect(),
        ..ColumnStatistics::default()
    }
}

fn relation(name: &str, columns: Vec<ColumnStatistics>) -> RelationStatistics {
    RelationStatistics {
        schema: "public".to_owned(),
        name: name.to_owned(),
        kind: RelationKind::Table,
        pages: 1,
        analyzed_pages: 1,
        rows: 10.0,
        all_visible: 0,
        table: None,
        definition: None,
        parents: Vec::new(),
        generated: BTreeMap::new(),
        height: None,
        columns,
    }
}

fn index(definition: &str, columns: Vec<ColumnStatistics>) -> RelationStatistics {
    RelationStatistics {
        kind: RelationKind::Index,
        table: Some("users".to_owned()),
        definition: Some(format!("CREATE INDEX users_email_of_all ON public.users USING btree {definition}")),
        ..relation("users_index", columns)
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

fn redact(words: &[&str], statistics: &mut Statistics) -> Result<(), RedactError> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    Redaction::parse(&words)?.apply(statistics)
}

/// Redacts a single relation.
fn redacted(words: &[&str], relation: RelationStatistics) -> RelationStatistics {
    let mut statistics = statistics(vec![relation]);
    redact(words, &mut statistics).unwrap();
    statistics.relations.remove(0)
}

fn values(column: &ColumnStatistics) -> Vec<(i16, Vec<&str>)> {
    let slots = column.slots.iter().filter_map(|slot| Some((slot.kind, slot.values.as_ref()?)));
    slots.map(|(kind, values)| (kind, values.iter().map(String::as_str).collect())).collect()
}

#[test]
fn type_decides_between_tokens_and_nothing() {
    let tokens = vec![(1, vec!["a0"]), (2, vec!["a0", "k5"])];
    let slots: &[(i16, &[&str])] = &[(1, &["x"]), (2, &["x", "y"])];
    for (type_name, expected) in [
        ("text", &tokens),
        ("character varying(20)", &tokens),
        ("character(2)", &tokens),
        ("extensions.citext", &tokens),
        ("text[]", &vec![]),
        ("character varying(20)[]", &vec![]),
        ("\"char\"", &vec![]),
        ("date", &vec![]),
        ("jsonb", &vec![]),
        ("public.mail", &vec![]),
        ("", &vec![]),
    ] {
        let table = redacted(&[], relation("users", vec![column("email", type_name, slots)]));
        assert_eq!(&values(&table.columns[0]), expected, "{type_name}");
        assert!(table.columns[0].redacted);
    }
    let elements: &[(i16, &[&str])] = &[(4, &["x", "y"])];
    for type_name in ["text[]", "character varying(20)[]", "tsvector"] {
        let table = redacted(&[], relation("users", vec![column("email", type_name, elements)]));
        assert_eq!(values(&table.columns[0]), [(4, vec!["a0", "k5"])], "{type_name}");
        assert_eq!(table.columns[0].slots[0].numbers.as_ref().unwrap().len(), 4);
    }
    let numbers = redacted(&[], relation("users", vec![column("phone", "bigint[]", elements)]));
    assert_eq!(values(&numbers.columns[0]), []);
}

#[test]
fn words_select_columns() {
    let slots: &[(i16, &[&str])] = &[(2, &["x", "y"])];
    for (words, expected) in [
        (&[][..], [true, false, false]),
        (&["none"], [false, false, false]),
        (&["all"], [true, true, true]),
        (&["state"], [true, true, false]),
        (&["none", "state"], [false, true, false]),
        (&["USERS.st*"], [true, true, false]),
        (&["none", "public.users.?*"], [true, true, true]),
        (&["none", "*.*.o[x]d"], [false, false, true]),
    ] {
        let columns = ["email", "state", "o[x]d"].map(|name| column(name, "text", slots)).to_vec();
        let table = redacted(words, relation("users", columns));
        assert_eq!(
            table.columns.iter().map(|column| column.redacted).collect::<Vec<_>>(),
            expected,
            "{words:?}"
        );
    }
    let mut none = statistics(vec![relation("users", vec![column("email", "text", slots)])]);
    assert_eq!(redact(&["orders.*"], &mut none), Err(RedactError::Unmatched("orders.*".to_owned())));
    assert!(matches!(redact(&["a..b"], &mut none), Err(RedactError::Pattern(_))));
    assert!(matches!(redact(&["all", "a"], &mut none), Err(RedactError::Contradiction(..))));
}

#[test]
fn partitions_and_generated_columns_follow() {
    let slots: &[(i16, &[&str])] = &[(2, &["x", "y"])];
    let name = |name: &str| RelationName { schema: "public".to_owned(), name: name.to_owned() };
    let mut parent = relation("visits", vec![]);
    parent.parents = vec![name("visits_deep")];
    let mut child = relation("visits_a", vec![column("remark", "text", slots)]);
    child.parents = vec![name("visits")];
    let mut deep =
        relation("visits_deep", ["words", "upper", "plain"].map(|name| column(name, "text", slots)).to_vec());
    // A damaged file may contain an inheritance circle.
    deep.parents = vec![name("visits_a")];
    deep.generated.insert("words".to_owned(), vec!["upper".to_owned()]);
    deep.generated.insert("upper".to_owned(), vec!["remark".to_owned(), "words".to_owned()]);
    let mut all = statistics(vec![parent, child, deep]);
    redact(&["visits.remark"], &mut all).unwrap();
    assert!(all.relations[1].columns[0].redacted);
    let flags: Vec<_> = all.relations[2].columns.iter().map(|column| column.redacted).collect();
    assert_eq!(flags, [true, true, false]);
}

#[test]
fn indexes_on_selected_columns_lose_values() {
    let slots: &[(i16, &[&str])] = &[(2, &["x", "y"])];
    for (definition, expected) in [
        ("(lower(email)) WHERE (id > 10)", "(lower(email)) WHERE (id > ?)"),
        ("(id) WHERE (\"Email\" <> 'it''s'::text)", "(id) WHERE (\"Email\" <> ?::text)"),
        ("(((users.*)::text))", "(((users.*)::text))"),
        ("(lower(title)) WHERE (title <> 'a'::name)", ""),
        ("(id) WITH (fillfactor='70')", ""),
    ] {
        let before = index(definition, vec![column("lower", "text", slots)]);
        let after = redacted(&[], before.clone());
        if expected.is_empty() {
            assert_eq!(after, before);
            continue;
        }
        assert!(after.definition.as_ref().unwrap().ends_with(expected), "{after:?}");
        assert_eq!(after.definition, before.definition.as_deref().map(without_literals));
        assert_eq!(values(&after.columns[0]), [(2, vec!["a0", "k5"])]);
    }
    // It isn't known which columns these indexes use.
    let mut unknown = index("", vec![column("lower", "text", slots)]);
    unknown.definition = None;
    assert!(redacted(&[], unknown.clone()).columns[0].redacted);
    assert!(!redacted(&["none"], unknown).columns[0].redacted);
    let mut numbered = relation("dumped", vec![column("", "", slots)]);
    numbered.columns[0].number = Some(1);
    let numbered = redacted(&[], numbered);
    assert_eq!((numbered.columns[0].redacted, values(&numbered.columns[0])), (true, vec![]));
}

#[test]
fn extended_statistics_have_the_tokens_of_the_column() {
    let slots: &[(i16, &[&str])] = &[(1, &["bob"]), (2, &["ann", "zoe"])];
    let object = |columns: &[&str]| ExtendedStatistics {
        schema: "public".to_owned(),
        name: "pairs".to_owned(),
        table: RelationName { schema: "public".to_owned(), name: "users".to_owned() },
        inherited: false,
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        distinct: Vec::new(),
        dependencies: vec![Dependency {
            columns: vec![columns[0].to_owned()],
            determines: columns[1].to_owned(),
            degree: 1.0,
        }],
        common: vec![CommonCombination {
            values: vec![Some("bob".to_owned()), Some("de".to_owned())],
            frequency: 0.5,
            base_frequency: 0.25,
        }],
        expressions: columns
            .iter()
            .filter(|column| column.contains('('))
            .map(|name| column(name, "", &[(2, &["ann", "zoe"])]))
            .collect(),
    };
    let mut all = statistics(vec![relation("users", vec![column("email", "text", slots)])]);
    all.extended = vec![
        object(&["email", "country"]),
        object(&["id", "(email = 'bob'::text)"]),
        object(&["id", "lower(x)"]),
    ];
    let before = all.clone();
    redact(&[], &mut all).unwrap();
    let bob = all.relations[0].columns[0].slots[0].values.as_ref().unwrap()[0].clone();
    assert_eq!(all.extended[0].common[0].values, [Some(bob), Some("de".to_owned())]);
    let expression = &all.extended[1];
    assert_eq!((expression.columns[1].as_str(), expression.common.len()), ("(email = ?::text)", 0));
    assert_eq!(expression.dependencies[0].determines, "(email = ?::text)");
    assert_eq!(
        (expression.expressions[0].column.as_str(), values(&expression.expressions[0])),
        ("(email = ?::text)", vec![])
    );
    assert_eq!(all.extended[2], before.extended[2]);
}
