//! Formats measured tests as JUnit XML for CI systems.
//!
//! CI systems such as Jenkins and GitLab read this format and show the measured times beside each test.

use std::collections::HashMap;

/// Class of all testcases. Only the test runner's own file contains the real classes.
const CLASS: &str = "pgfresh";

/// A run's tests. This crate doesn't know the outcomes that the test runner reports.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredTests {
    /// The command that ran the tests.
    pub name: String,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// The run's tests.
    pub tests: Vec<MeasuredTest>,
}

/// The measurements of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredTest {
    /// The test's name, as reported by the test runner.
    pub name: String,
    /// How long the test was busy, in seconds.
    pub seconds: f64,
    /// Names and values for programs.
    pub properties: Vec<(&'static str, String)>,
    /// Human-readable sentences about the test.
    pub notes: Vec<String>,
    /// Reason why the test fails even if its test runner reports it as passed, such as an exceeded budget.
    pub failure: Option<String>,
    /// Reason why nothing was measured. A failure takes precedence.
    pub skipped: Option<String>,
}

/// Formats one testcase per test. For `None`, returns a document without testcases.
///
/// A testcase without a failure doesn't contain a result. The document only uses elements that Jenkins, GitLab and
/// pytest agree on: those from the schema of Ant's junit task, plus the `properties` that pytest writes in a testcase.
pub(crate) fn render(tests: Option<&MeasuredTests>) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    if let Some(suite) = tests {
        suite.write_to(&mut text);
    }
    text + "</testsuites>\n"
}

impl MeasuredTests {
    fn write_to(&self, text: &mut String) {
        let (name, count, seconds) = (escaped(&self.name), self.tests.len(), decimal(self.seconds));
        let failures = self.tests.iter().filter(|test| test.failure.is_some()).count();
        let skipped = self.tests.iter().filter(|test| test.is_skipped()).count();
        text.push_str(&format!(
            "<testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds}\">\n"
        ));
        self.tests.iter().for_each(|test| test.write_to(text));
        text.push_str("</testsuite>\n");
    }

    /// Adds the measurements in `others` to the tests with the same names, and appends all other tests.
    pub(crate) fn merge(&mut self, others: Self) {
        let mut places: HashMap<String, usize> = HashMap::new();
        for (place, test) in self.tests.iter().enumerate() {
            places.entry(test.name.clone()).or_insert(place);
        }
        for other in others.tests {
            match places.get(&other.name) {
                Some(place) => {
                    let test = &mut self.tests[*place];
                    test.properties.extend(other.properties);
                    test.notes.extend(other.notes);
                    test.failure = test.failure.take().or(other.failure);
                    test.skipped = test.skipped.take().or(other.skipped);
                }
                None => self.tests.push(other),
            }
        }
    }
}

impl MeasuredTest {
    fn is_skipped(&self) -> bool {
        self.failure.is_none() && self.skipped.is_some()
    }

    fn write_to(&self, text: &mut String) {
        let (name, seconds) = (escaped(&self.name), decimal(self.seconds));
        text.push_str(&format!(
            "<testcase classname=\"{CLASS}\" name=\"{name}\" time=\"{seconds}\">\n<properties>\n"
        ));
        for (name, value) in &self.properties {
            text.push_str(&format!("<property name=\"{}\" value=\"{}\"/>\n", escaped(name), escaped(value)));
        }
        text.push_str("</properties>\n");
        if let Some(failure) = &self.failure {
            text.push_str(&format!("<failure message=\"{}\"/>\n", escaped(failure)));
        }
        if let Some(reason) = self.skipped.as_ref().filter(|_| self.is_skipped()) {
            text.push_str(&format!("<skipped message=\"{}\"/>\n", escaped(reason)));
        }
        if !self.notes.is_empty() {
            let notes: Vec<_> = self.notes.iter().map(|note| escaped(note)).collect();
            text.push_str(&format!("<system-out>{}</system-out>\n", notes.join("\n")));
        }
        text.push_str("</testcase>\n");
    }
}

/// Formats seconds with six decimals and without an exponent, because XML decimals can't have an exponent.
fn decimal(seconds: f64) -> String {
    if seconds.is_finite() { format!("{seconds:.6}") } else { "0.000000".to_owned() }
}

/// Escapes `text` for use in an element or an attribute.
///
/// Characters that XML forbids become replacement characters. Characters that wouldn't survive parsing, such as a line
/// break in an attribute, become character references.
///
/// Source: XML 1.0, fifth edition, 2.2 and 3.3.3.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' | '\u{7f}'..='\u{9f}' => escaped.push_str(&format!("&#{};", u32::from(sign))),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            sign => escaped.push(sign),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, Node};

    use super::*;
    use crate::Report;

    fn report(tests: Vec<MeasuredTest>) -> Report {
        let mut report = Report::new("x");
        report.set_tests(MeasuredTests { name: "pytest -q".into(), seconds: 1.5, tests });
        report
    }

    fn test(name: &str) -> MeasuredTest {
        MeasuredTest {
            name: name.into(),
            seconds: 0.25,
            properties: vec![("statements", "51".into())],
            notes: Vec::new(),
            failure: None,
            skipped: None,
        }
    }

    #[test]
    fn skipped_test_has_reason_unless_it_fails() {
        let skipped = MeasuredTest { skipped: Some("no fault was tried".into()), ..test("a") };
        let both = MeasuredTest { failure: Some("lost".into()), ..skipped.clone() };
        let text = report(vec![skipped, both, test("c")]).to_junit();
        assert!(text.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{text}");
        assert_eq!(text.matches("<skipped message=\"no fault was tried\"/>").count(), 1, "{text}");
    }

    #[test]
    fn merged_tests_keep_their_measurements() {
        let mut report = report(vec![test("a"), test("b")]);
        let over = MeasuredTest {
            seconds: 0.0,
            properties: vec![("plan_cost", "7".into())],
            failure: Some("cost 7, 5 \"allowed\"".into()),
            ..test("b")
        };
        report.merge_tests(MeasuredTests {
            name: "other".into(),
            seconds: 0.0,
            tests: vec![over, test("c")],
        });
        let text = report.to_junit();
        assert!(text.contains("tests=\"3\" failures=\"1\""), "{text}");
        let of_b = "<testcase classname=\"pgfresh\" name=\"b\" time=\"0.250000\">\n<properties>\n\
            <property name=\"statements\" value=\"51\"/>\n<property name=\"plan_cost\" value=\"7\"/>\n</properties>\n\
            <failure message=\"cost 7, 5 &quot;allowed&quot;\"/>\n</testcase>\n";
        assert!(text.contains(of_b), "{text}");
    }

    #[test]
    fn each_test_becomes_testcase_with_properties() {
        let noted = MeasuredTest {
            notes: vec!["N+1: 50 × SELECT 1 < 2".into(), "more".into()],
            ..test("b > \"c\"")
        };
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
            <testsuite name=\"pytest -q\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"0\" time=\"1.500000\">\n\
            <testcase classname=\"pgfresh\" name=\"a::b\" time=\"0.250000\">\n<properties>\n\
            <property name=\"statements\" value=\"51\"/>\n</properties>\n</testcase>\n\
            <testcase classname=\"pgfresh\" name=\"b &gt; &quot;c&quot;\" time=\"0.250000\">\n<properties>\n\
            <property name=\"statements\" value=\"51\"/>\n</properties>\n\
            <system-out>N+1: 50 × SELECT 1 &lt; 2\nmore</system-out>\n</testcase>\n\
            </testsuite>\n</testsuites>\n";
        assert_eq!(report(vec![test("a::b"), noted]).to_junit(), expected);
    }

    #[test]
    fn junit_document_without_tests_is_empty() {
        let text = Report::new("x").to_junit();
        let document = Document::parse(&text).unwrap();
        assert_eq!(document.descendants().filter(|node| node.has_tag_name("testcase")).count(), 0);
    }

    /// Replaces the characters that XML forbids, as the code under test should.
    fn possible(text: &str) -> String {
        text.replace(
            |sign: char| sign < ' ' && !"\t\n\r".contains(sign) || "\u{fffe}\u{ffff}".contains(sign),
            "\u{fffd}",
        )
    }

    proptest! {
        #[test]
        fn junit_parser_reads_back_any_test_name(
            names in prop::collection::vec(any::<String>(), 0..5),
            note in any::<String>(),
            value in any::<String>(),
            seconds in any::<f64>(),
        ) {
            let tests = names.iter().map(|name| MeasuredTest {
                seconds,
                properties: vec![("n_plus_one", value.clone())],
                notes: vec![note.clone()],
                ..test(name)
            });
            let text = report(tests.collect()).to_junit();
            let document = Document::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
            let cases: Vec<Node<'_, '_>> = document.descendants().filter(|node| node.has_tag_name("testcase")).collect();
            prop_assert_eq!(cases.len(), names.len());
            for (case, name) in cases.iter().zip(&names) {
                prop_assert_eq!(case.attribute("name"), Some(&*possible(name)));
                let property = case.descendants().find(|node| node.has_tag_name("property"));
                prop_assert_eq!(property.and_then(|node| node.attribute("value")), Some(&*possible(&value)));
                let said = case.descendants().find(|node| node.has_tag_name("system-out"));
                prop_assert_eq!(said.and_then(|node| node.text()).unwrap_or_default(), possible(&note));
                prop_assert!(case.attribute("time").is_some_and(|time| time.parse::<f64>().is_ok()));
            }
        }
    }
}
