//! Checks that a figure on two pages is the same. docs/results.md has the newest figure, and
//! the other pages round it.

use std::fs;
use std::path::Path;

/// Reads a page. `name` is its path relative to the checkout's root.
fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it lies two below");
    fs::read_to_string(root.join(name)).unwrap()
}

/// Returns the part of a page from `heading` to the next heading of the same level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let level = heading.split(' ').next().unwrap();
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let rest = &page[start + 1..];
    let end = rest[1..].find(&format!("\n{level} ")).map_or(rest.len(), |end| end + 1);
    &rest[..end]
}

/// Returns the cells in each row of a text's tables.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.map(|line| line.trim().trim_matches('|').split('|').map(str::trim).collect())
}

/// Returns the numbers in a text, as written.
fn numbers(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_digit() && !".,".contains(c));
    let words = words.map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    words.filter(|word| word.parse::<f64>().is_ok()).collect()
}

/// Rounds a number to as many decimal places as `model` has.
fn rounded_like(number: &str, model: &str) -> String {
    let decimals = model.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{:.decimals$}", number.parse::<f64>().unwrap())
}

/// Returns all numbers in a command's results, from its sections and the summary.
fn results_of(results: &str, command: &str) -> Vec<String> {
    let plain =
        |block: &str| block.split(" --rounds").next().unwrap().replace(" MOUNT", "").trim().to_owned();
    let mut found = Vec::new();
    for part in results.split("\n```sh\n").skip(1) {
        let (block, rest) = part.split_once("```").unwrap();
        if block.split("&&").any(|one| plain(one.trim()) == command) {
            let end = ["\n## ", "\n### "].iter().filter_map(|heading| rest.find(heading)).min();
            found.extend(numbers(&rest[..end.unwrap_or(rest.len())]));
        }
    }
    for cells in rows(section(results, "## Summary")) {
        if cells.last().is_some_and(|last| format!("pgfresh {}", last.trim_matches(['`', ' '])) == command) {
            found.extend(numbers(cells[1]));
        }
    }
    found
}

#[test]
fn figures_in_readme_are_those_of_results() {
    let (readme, results) = (page("README.md"), page("docs/results.md"));
    let mut checked = 0;
    for cells in rows(section(&readme, "## How fast it is")) {
        let command = cells.last().unwrap().trim_matches(['`', ' ']);
        if !command.starts_with("pgfresh bench") {
            continue;
        }
        let known = results_of(&results, command);
        for figure in numbers(cells[1]) {
            assert!(
                known.iter().any(|number| rounded_like(number, &figure) == figure),
                "README.md has {figure} in {cells:?}, but the results of {command:?} are {known:?}"
            );
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn figures_of_other_tools_agree_with_results() {
    let (results, compared) = (page("docs/results.md"), page("docs/compared.md"));
    let known: Vec<_> = rows(section(&compared, "## The same 30 tests with each"))
        .filter(|cells| cells.len() == 5)
        .flat_map(|cells| numbers(cells[3].split(" (").next().unwrap()))
        .collect();
    let stated: Vec<_> = rows(section(&results, "## The same tests with other tools"))
        .flat_map(|cells| cells[2..].iter().flat_map(|cell| numbers(cell)).collect::<Vec<_>>())
        .collect();
    assert!(stated.len() >= 20, "{stated:?}");
    for figure in &stated {
        assert!(
            known.contains(figure),
            "docs/results.md has {figure} s, docs/compared.md has not: {known:?}"
        );
    }
    assert_eq!(known.len(), stated.len(), "{known:?} {stated:?}");
}
