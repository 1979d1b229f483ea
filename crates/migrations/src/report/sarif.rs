//! Formats the report as SARIF, for code scanning. Source: SARIF 2.1.0, an OASIS standard.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::{MigrationReport, ReportedStatement, words};

/// Characters that must be escaped in the path of a relative URI. The text before a colon would look like a scheme.
/// Source: RFC 3986.
const NOT_IN_URI: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b':')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// Rules for results that don't come from advice.
const BUDGET: (&str, &str) = ("budget", "A migration exceeds a budget of [migrate] in pgfresh.toml.");
const OLD_CODE: (&str, &str) = ("old-code", "A statement of the suite fails after the migration.");
const FAILURE: (&str, &str) = ("failure", "A statement of a migration fails or does not end.");

impl MigrationReport {
    /// Returns a SARIF log with a result for each piece of advice, exceeded budget and broken statement. Results of a
    /// statement with an exception are marked as suppressed.
    pub(super) fn to_sarif(&self) -> Value {
        let mut rules: BTreeMap<String, String> = BTreeMap::new();
        let mut results = Vec::new();
        for (place, statement) in self.statements.iter().enumerate() {
            let mut add = |level: &str, rule: &str, description: &str, message: String| {
                rules.entry(rule.to_owned()).or_insert_with(|| description.to_owned());
                results.push(self.result(statement, level, rule, &message));
            };
            for advice in &statement.advice {
                let page = words::page(advice.topic);
                let message = format!("{}. Instead: {}", advice.danger, advice.instead);
                add("warning", &advice.topic.anchor(), &format!("See {page}."), message);
            }
            for broken in &statement.breaks {
                add(
                    "warning",
                    OLD_CODE.0,
                    OLD_CODE.1,
                    format!("breaks {}: {}", broken.statement, broken.error),
                );
            }
            if let Some(failure) = words::failure(&statement.observed) {
                add("error", FAILURE.0, FAILURE.1, failure);
            }
            for over in self.over_budget.iter().filter(|over| over.statement == place) {
                add("error", BUDGET.0, BUDGET.1, over.message.clone());
            }
        }
        let rules: Vec<_> = rules
            .iter()
            .map(|(id, description)| json!({ "id": id, "shortDescription": { "text": description } }))
            .collect();
        let driver =
            json!({ "name": "pgfresh migrate", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
            "runs": [{ "tool": { "driver": driver }, "results": results }],
        })
    }

    fn result(&self, statement: &ReportedStatement, level: &str, rule: &str, message: &str) -> Value {
        let file = self.file_of(statement).unwrap_or(&self.settings_file);
        let uri = utf8_percent_encode(file, NOT_IN_URI).to_string();
        let mut location = json!({ "artifactLocation": { "uri": uri } });
        if let Some(line) = statement.line {
            location["region"] = json!({ "startLine": line });
        }
        let text = format!("{message}\n{}", statement.observed.sql);
        let mut result = json!({
            "ruleId": rule, "level": level, "message": { "text": text },
            "locations": [{ "physicalLocation": location }],
        });
        if let Some(reason) = &statement.exception {
            result["suppressions"] = json!([{ "kind": "external", "justification": reason }]);
        }
        result
    }

    /// Returns the repository path of the statement's migration file. `None` if the file is unknown.
    pub(super) fn file_of(&self, statement: &ReportedStatement) -> Option<&str> {
        self.files.get(statement.migration.as_ref()?).map(String::as_str)
    }
}
