//! Tests reports with arbitrary names, statements and values: pages must stay well-formed, and lines must fit
//! the terminal.

use proptest::prelude::*;
use report::{
    Basis, Cell, Column, Distribution, Factor, Finding, Gain, Layer, Plot, Quantity, Report, Sample, Table,
    Tile, TimeSeries, Unit, display_width,
};

/// Returns a report that contains these texts and numbers in all of its parts.
fn report(texts: &[String], numbers: &[f64]) -> Report {
    let text = |index: usize| texts[index % texts.len()].clone();
    let number = |index: usize| numbers[index % numbers.len()];
    let mut report = Report::new(text(0));
    report.add_environment(text(1), text(2));
    report.add_tiles([Tile::new(text(3), Quantity::new(number(0), Unit::Seconds), text(4))]);
    let mut layer = Layer::new(text(5), text(6));
    layer.add_fact(text(7), text(8));
    layer.add_fact(text(9), Quantity::new(number(1), Unit::Bytes));
    report.add_layer(layer);
    let factor = Factor::Point(Quantity::new(number(2), Unit::Ratio));
    let gain = Gain { of: text(1), factor, basis: Basis::Measured, change: None };
    report.add_findings([Finding { name: text(2), evidence: text(3), gain: Some(gain), remedy: text(4) }]);
    let series =
        |name, unit| TimeSeries { name, unit, values: numbers.iter().map(|value| Some(*value)).collect() };
    let both = vec![series(text(5), Unit::Count), series(text(6), Unit::Celsius)];
    report.add_plot(Plot::new(text(7), Quantity::new(number(3), Unit::Seconds), both));
    let mut sample = Sample::new(text(8), Unit::Seconds);
    for value in numbers {
        sample.push(*value).unwrap();
    }
    report.add_distribution(Distribution::new(text(9), [sample]));
    let numbers = ["one", "two", "three", "four", "five", "six"].map(Column::right);
    let mut table =
        Table::new(text(0), numbers.into_iter().chain([Column::left("name"), Column::left("sql")]));
    table.set_remark(text(1));
    let cells = (0..6).map(|index| Cell::from(Quantity::new(number(index), Unit::Seconds)));
    table.add_row(cells.chain([text(2).into(), Cell::statement(text(3))]));
    report.add_table(table);
    report.add_notes([text(4)]);
    report
}

/// Returns a page's elements in order, each with the names of its attributes. For styles and scripts, also returns
/// their length.
fn skeleton(page: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), page);
    while let Some((_, tag)) = rest.split_once('<') {
        let (mut name, mut quoted, mut end) = (String::new(), false, tag.len());
        for (at, letter) in tag.char_indices() {
            match letter {
                '"' => quoted = !quoted,
                '>' if !quoted => {
                    end = at;
                    break;
                }
                letter if !quoted => name.push(letter),
                _ => {}
            }
        }
        rest = &tag[end..];
        if let Some(raw) = ["style", "script"].into_iter().find(|raw| name == *raw) {
            let content = rest.split(&format!("</{raw}>")).next().unwrap_or_default();
            name += &content.len().to_string();
            rest = &rest[content.len()..];
        }
        // The length of a text alone determines whether a statement is folded, and which class its cell has.
        if !["details", "/details", "summary", "/summary"].contains(&name.as_str()) {
            found.push(name.replace("td class= ", "td "));
        }
    }
    found
}

/// Generates arbitrary texts, and texts that look like markup, terminal sequences or very long words.
fn hostile() -> impl Strategy<Value = String> {
    let planted = [
        "</script><script>alert(1)</script>",
        "\" onmouseover=\"alert(1)",
        "</style><!--",
        "]]>&lt;\u{1b}[2J\u{202e}",
        "'><img src=x onerror=alert(1)>",
    ];
    prop_oneof![
        any::<String>(),
        "[<>&\"'=/!a-z -]{0,60}",
        prop::sample::select(planted.to_vec()).prop_map(str::to_owned),
        (0..300_usize).prop_map(|length| "日本".repeat(length)),
        "[a-z_]{0,300}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_add_no_markup(texts in prop::collection::vec(hostile(), 10), numbers in prop::collection::vec(0.0..1e6, 1..20)) {
        // Append a letter, because a report omits an empty text and would then differ in its elements.
        let texts: Vec<String> = texts.into_iter().map(|text| text + "x").collect();
        let calm = report(&["x".to_owned()], &numbers).to_html("");
        let page = report(&texts, &numbers).to_html("");
        prop_assert_eq!(skeleton(&page), skeleton(&calm));
    }

    #[test]
    fn lines_fit_the_terminal(
        texts in prop::collection::vec(hostile(), 10),
        numbers in prop::collection::vec(0.0..1e6, 1..80),
        columns in prop_oneof![Just(40_usize), Just(80), Just(200), 30_usize..200],
    ) {
        for line in report(&texts, &numbers).to_text(columns).lines() {
            prop_assert!(display_width(line) <= columns, "{}: {:?}", columns, line);
        }
    }
}

#[test]
fn planted_element_changes_the_skeleton() {
    let calm = skeleton("<p class=\"a\">x</p>");
    assert_eq!(calm, ["p class=", "/p"]);
    assert_ne!(skeleton("<p class=\"a\" onclick=\"b\">x</p>"), calm);
    assert_ne!(skeleton("<p class=\"a\"><i>x</p>"), calm);
}
