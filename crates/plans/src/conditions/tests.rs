use proptest::prelude::*;

use super::*;

#[expect(clippy::unnecessary_wraps, reason = "the tests compare it with an option")]
fn comparison<'a>(left: &'a str, operator: &'a str, right: &'a str) -> Option<Test<'a>> {
    Some(Test::Comparison { left, operator, right, any: false })
}

#[test]
fn conditions_are_split_into_comparisons() {
    let text = "((o.customer_id = 7) AND ((o.status)::text = 'a AND b'::text) AND (o.\"AND\" > 3))";
    let parts = conjuncts(text);
    assert_eq!(parts, ["(o.customer_id = 7)", "((o.status)::text = 'a AND b'::text)", "(o.\"AND\" > 3)"]);
    assert_eq!(test(parts[0]), comparison("o.customer_id", "=", "7"));
    assert_eq!(test(parts[1]), comparison("(o.status)::text", "=", "'a AND b'::text"));
    assert_eq!(test(parts[2]), comparison("o.\"AND\"", ">", "3"));
    assert_eq!(disjuncts("((a.x = 1) OR (a.y = 2))"), ["(a.x = 1)", "(a.y = 2)"]);
    assert_eq!(conjuncts("(a.x = 1)"), ["a.x = 1"]);
}

#[test]
fn operators_and_tests_are_distinguished() {
    for (text, expected) in [
        (
            "(o.id = ANY ('{1,2}'::integer[]))",
            Some(Test::Comparison { left: "o.id", operator: "=", right: "('{1,2}'::integer[])", any: true }),
        ),
        ("(o.id <> ALL ('{1,2}'::integer[]))", None),
        ("(o.tags @> '{3}'::integer[])", comparison("o.tags", "@>", "'{3}'::integer[]")),
        ("((o.data ->> 'k'::text) = 'v'::text)", comparison("(o.data ->> 'k'::text)", "=", "'v'::text")),
        ("(lower(o.note) ~~ 'x%'::text)", comparison("lower(o.note)", "~~", "'x%'::text")),
        ("(o.gone IS NULL)", Some(Test::Null { of: "o.gone", not: false })),
        ("(lower(o.a) IS NOT NULL)", Some(Test::Null { of: "lower(o.a)", not: true })),
        ("o.paid", Some(Test::Boolean { of: "o.paid", not: false })),
        ("(NOT o.paid)", Some(Test::Boolean { of: "o.paid", not: true })),
        ("(o.a IS DISTINCT FROM 3)", None),
        ("(NOT (hashed SubPlan 1))", None),
        (
            "(o.created > (now() - '1 day'::interval))",
            comparison("o.created", ">", "(now() - '1 day'::interval)"),
        ),
        ("((o.id % 7) = 0)", comparison("(o.id % 7)", "=", "0")),
        ("", None),
        ("NULL", None),
    ] {
        assert_eq!(test(text), expected, "{text}");
    }
}

#[test]
fn columns_differ_from_types_and_functions() {
    let columns = |text| -> Vec<String> {
        references(text).into_iter().map(|found| format!("{}/{}", found.alias, found.column)).collect()
    };
    assert_eq!(columns("(o.status = 'new'::shop.status)"), ["o/status"]);
    assert_eq!(columns("(shop.f(o.a, \"O p\".\"b.c\") = (InitPlan 1).col1)"), ["o/a", "O p/b.c"]);
    assert_eq!(columns("(o.name COLLATE pg_catalog.\"C\")"), ["o/name"]);
    assert_eq!(columns("(o.* IS NULL)"), ["o/*"]);
    assert_eq!(columns("(1.5 > o.x)"), ["o/x"]);
    assert_eq!(without_alias("lower(o.\"Na me\") || p.x", "o"), "lower(\"Na me\") || p.x");
    assert_eq!(single_reference("(o.id)").unwrap().column, "id");
    assert_eq!(single_reference("(o.id)::text"), None);
}

#[test]
fn lists_split_at_outer_commas() {
    assert_eq!(
        list("a, lower(b, c) DESC, ((d ->> ','::text))"),
        ["a", "lower(b, c) DESC", "((d ->> ','::text))"]
    );
    assert_eq!(without_parentheses(" ((a) = (b)) "), "(a) = (b)");
    assert_eq!(without_parentheses("((a))"), "a");
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in prop_oneof![
        "[ANDORIStNULanyl.()=<>~:'\"\\[\\]$%,0-9 éa]{0,60}", any::<String>(),
    ]) {
        for part in conjuncts(&text).into_iter().chain(disjuncts(&text)).chain(list(&text)) {
            let _ = test(part);
            for reference in references(part) {
                let _ = without_alias(part, &reference.alias);
            }
            let _ = (single_reference(part), outer_words(part));
        }
    }
}

#[test]
fn values_in_expressions_differ_from_their_parts() {
    for text in [
        "x.at",
        "lower((x.name)::text)",
        "(x.data ->> 'k'::text)",
        "((x.data -> 'a'::text) #>> '{b,c}'::text[])",
        "COALESCE(x.score, 0)",
        "date_trunc('day'::text, x.at)",
        "(x.at AT TIME ZONE 'UTC'::text)",
        "(x.price)::numeric(10,2)",
        "(x.name)::character varying(20)",
        "CASE WHEN (x.a = 1) THEN 0 ELSE 1 END",
    ] {
        assert!(!has_value(text), "{text}");
    }
    for text in [
        "abs((x.big - 5))",
        "similarity(x.name, 'foo'::text)",
        "(x.pt <-> '(1,1)'::point)",
        "(x.a * COALESCE(x.b, 0) + 7)",
    ] {
        assert!(has_value(text), "{text}");
    }
}
