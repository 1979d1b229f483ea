//! Finds the names of failed tests in test runners' output.

use std::collections::BTreeSet;

/// Maximum number of test names in a message.
const SHOWN: usize = 10;
/// Advice about a test that failed on every server.
const ADVICE: &str = "A test fails on each server, too, if it expects that a database does not exist: pgfresh creates each name. \
    \"except\" in [databases], or --except, lists the names that it does not create.";

/// Returns the names of the failed tests in a test runner's output. Recognizes pytest, unittest, Django, Go, Rust,
/// Jest, `RSpec` and TAP.
pub(crate) fn failed_tests(output: &str) -> BTreeSet<String> {
    output.lines().filter_map(|line| failed_in(line.trim())).map(str::to_owned).collect()
}

/// Returns the failed test's name if this line reports a failure.
fn failed_in(line: &str) -> Option<&str> {
    let first_word = |text: &'static str| line.strip_prefix(text)?.split_whitespace().next();
    if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
        return Some(name);
    }
    if let Some(rest) = line.strip_prefix("not ok ") {
        return rest.split_once(" - ").map(|(_, name)| name);
    }
    if let Some(name) = line.strip_prefix("● ").filter(|name| name.contains(" › ")) {
        return Some(name);
    }
    let name = ["FAILED ", "ERROR ", "--- FAIL: ", "FAIL: ", "ERROR: ", "rspec "]
        .into_iter()
        .find_map(first_word)?;
    // A single word may be part of an ordinary message, so don't mistake it for a test's name.
    name.contains(['_', ':', '/']).then_some(name).or_else(|| first_word("--- FAIL: "))
}

/// Describes the tests that failed in every run, or returns `None` if there are none.
pub(crate) fn describe(failed: &BTreeSet<String>) -> Option<String> {
    if failed.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = failed.iter().take(SHOWN).map(String::as_str).collect();
    let more = format!("{} more", failed.len().saturating_sub(SHOWN));
    if failed.len() > SHOWN {
        names.push(&more);
    }
    Some(format!("failed in all runs, on each server: {}\nHINT:  {ADVICE}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_parsed_from_runner_output() {
        for (output, expected) in [
            (
                "FAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed, 3 passed",
                &["tests/test_a.py::test_b"][..],
            ),
            (
                "=== RUN   Test_Start_Error\n    --- FAIL: Test_Start_Error/wrong_name (0.00s)\nFAIL",
                &["Test_Start_Error/wrong_name"],
            ),
            ("--- FAIL: TestStart (0.01s)", &["TestStart"]),
            ("test client::starts ... FAILED\ntest client::stops ... ok", &["client::starts"]),
            (
                "FAIL: test_name (app.tests.OrderTests.test_name)\nERROR: test_other (app.tests)",
                &["test_name", "test_other"],
            ),
            ("  ● orders › wrong database\n", &["orders › wrong database"]),
            ("not ok 3 - connects", &["connects"]),
            ("rspec ./spec/order_spec.rb:3 # Order", &["./spec/order_spec.rb:3"]),
            ("ERROR: relation does not exist\nFAILED (failures=1)\nFAIL", &[]),
            ("", &[]),
        ] {
            let expected: BTreeSet<_> = expected.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(failed_tests(output), expected, "{output}");
        }
    }

    #[test]
    fn long_list_of_failed_tests_is_shortened() {
        let failed: BTreeSet<_> = (0..20).map(|number| format!("test_{number:02}")).collect();
        let text = describe(&failed).unwrap();
        assert!(text.contains("test_00, ") && text.contains("test_09, 10 more"), "{text}");
        assert_eq!(describe(&BTreeSet::new()), None);
    }
}
