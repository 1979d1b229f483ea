//! Generates `openapi.json` from the types of this crate and the table of operations.
//!
//! `PGFRESH_WRITE_DOCS=1 cargo test -p pgfresh-contract` writes this file and the tables of `docs/http.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::{ErrorBody, ErrorCode, Remedy};

pub(crate) mod faults;
mod operations;

/// Pattern of a valid lease name.
pub(crate) const NAME: &str = r"^[^\u0000]+$";
/// Largest whole number that all languages can represent in JSON.
pub(crate) const MOST: u64 = (1 << 53) - 1;
/// Pattern of a valid template name.
pub(crate) const TEMPLATE: &str = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,45}$";
/// Returns the schema of names that leases can't have.
pub(crate) fn reserved_leases() -> Value {
    json!({ "type": "string", "pattern": "^(postgres|template[01])$|^(pgfresh|integresql)_" })
}

/// Returns the schema of names that templates can't have. On the command line, `none` means no template.
pub(crate) fn reserved_templates() -> Value {
    json!({ "type": "string", "pattern": "^(none|postgres|template[01])$|^pgfresh_" })
}

/// Pattern of a time with its unit, up to about a year.
pub(crate) const TIME: &str = "^(0+|[0-9]{1,10} ?ms|[0-9]{1,7} ?s|[0-9]{1,5} ?m(in)?|[0-9]{1,3} ?h)$";

/// Pattern of a replica's lag, up to 24 days.
pub(crate) const LAG: &str =
    "^(none|paused|0+|[0-9]{1,9} ?ms|[0-9]{1,6} ?s|[0-9]{1,4} ?m(in)?|[0-9]{1,2} ?h)$";

const DESCRIPTION: &str = "Leases fresh PostgreSQL databases over HTTP. `pgfresh serve` and `pgfresh run` serve this API on the port of the \
    PostgreSQL protocol. Programs should check an error's `code` and its `remedy`, if it has one, because its texts may change.";

/// Errors that each operation can return: an unreadable path, no secret, a foreign host, a bug or the server's own
/// error, and a server that doesn't respond.
const ALWAYS: [u16; 5] = [400, 401, 403, 500, 503];
/// Errors that each request with a body can return.
const OF_BODIES: [u16; 2] = [408, 413];

/// Maximum width of a line of the file that contains several values.
const WIDTH: usize = 120;

/// A request that the server supports.
struct Operation {
    method: &'static str,
    path: &'static str,
    /// Name of the operation, for generated clients.
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    /// Schema of the body, if the request can have one. The flag is true if the body is required.
    body: Option<(Schema, bool)>,
    responses: Vec<Response>,
    /// Statuses of further errors, besides those common to all operations.
    errors: &'static [u16],
    /// Whether the same user's programs on this machine can use the operation without the secret.
    is_open: bool,
}

/// A successful response.
struct Response {
    status: u16,
    description: &'static str,
    /// Media type and schema of the body, if it has one.
    content: Option<(&'static str, Schema)>,
}

impl Operation {
    fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters = names.map(path_parameter).collect();
        let is_open = path.starts_with("/api/");
        Self {
            method,
            path,
            id,
            summary,
            parameters,
            body: None,
            responses: Vec::new(),
            errors: &[],
            is_open,
        }
    }

    fn query(mut self, name: &str, description: &str, schema: &Value) -> Self {
        self.parameters.push(json!({
            "name": name, "in": "query", "description": description, "schema": schema
        }));
        self
    }

    /// Adds the three limits of a budget.
    fn budget(self) -> Self {
        let count = json!({ "type": "integer", "minimum": 0, "maximum": MOST });
        self.query("statements", "Maximum number of statements in the test.", &count)
            .query("n_plus_one", "Maximum number of runs of one query with different values.", &count)
            .query(
                "time",
                "Maximum total time of all statements, with a unit, such as `200ms`.",
                &json!({ "type": "string", "pattern": TIME }),
            )
    }

    fn body<T: JsonSchema>(mut self, generator: &mut SchemaGenerator, is_required: bool) -> Self {
        self.body = Some((generator.subschema_for::<T>(), is_required));
        self
    }

    fn json<T: JsonSchema>(
        mut self,
        generator: &mut SchemaGenerator,
        status: u16,
        what: &'static str,
    ) -> Self {
        let content = Some(("application/json", generator.subschema_for::<T>()));
        self.responses.push(Response { status, description: what, content });
        self
    }

    fn text(mut self, kind: &'static str, what: &'static str) -> Self {
        let schema = schemars::json_schema!({ "type": "string" });
        self.responses.push(Response { status: 200, description: what, content: Some((kind, schema)) });
        self
    }

    fn nothing(mut self, what: &'static str) -> Self {
        self.responses.push(Response { status: 204, description: what, content: None });
        self
    }

    fn errors(mut self, statuses: &'static [u16]) -> Self {
        self.errors = statuses;
        self
    }

    fn to_json(&self) -> Value {
        let mut responses = Map::new();
        for Response { status, description, content } in &self.responses {
            let mut response = json!({ "description": description });
            if let Some((kind, schema)) = content {
                response["content"] = json!({ *kind: { "schema": schema } });
            }
            if let Some(links) = operations::links(self.id) {
                response["links"] = links;
            }
            responses.insert(status.to_string(), response);
        }
        for status in self.error_statuses() {
            let reference = json!({ "$ref": format!("#/components/responses/Error{status}") });
            responses.insert(status.to_string(), reference);
        }
        let mut operation = json!({
            "operationId": self.id, "summary": self.summary, "responses": responses
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        if let Some((schema, is_required)) = &self.body {
            let content = json!({ "application/json": { "schema": schema } });
            operation["requestBody"] = json!({ "required": is_required, "content": content });
        }
        if self.is_open {
            operation["security"] = json!([{}, { "bearer": [] }, { "basic": [] }]);
        }
        operation
    }

    fn error_statuses(&self) -> Vec<u16> {
        let of_body = if self.body.is_some() || self.is_open { &OF_BODIES[..] } else { &[] };
        let mut statuses = [&ALWAYS, of_body, self.errors].concat();
        statuses.sort_unstable();
        statuses
    }
}

fn path_parameter(name: &str) -> Value {
    let (what, schema) = match name {
        "hash" => ("Hash of the template.", json!({ "type": "string", "pattern": NAME })),
        "id" => ("Number of the test database.", json!({ "type": "integer", "minimum": 0, "maximum": MOST })),
        _ => ("Name of the database, percent-encoded.", json!({ "type": "string", "pattern": NAME })),
    };
    json!({ "name": name, "in": "path", "required": true, "description": what, "schema": schema })
}

/// Returns the whole document.
fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let operations = operations::all(&mut generator);
    let mut paths = Map::new();
    for operation in &operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = operation.to_json();
    }
    let error = generator.subschema_for::<ErrorBody>();
    let mut statuses: Vec<_> = operations.iter().flat_map(Operation::error_statuses).collect();
    statuses.push(405);
    statuses.sort_unstable();
    statuses.dedup();
    let responses: Map<_, _> = statuses
        .iter()
        .map(|status| {
            let content = json!({ "application/json": { "schema": error } });
            (format!("Error{status}"), json!({ "description": meanings(*status), "content": content }))
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "pgfresh", "version": "1", "description": DESCRIPTION },
        "security": [{ "bearer": [] }, { "basic": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "The secret: the password of the URL that pgfresh printed." },
                "basic": { "type": "http", "scheme": "basic", "description": "Any user, with the secret as the password." },
            },
            "responses": responses,
            "schemas": generator.take_definitions(true),
        },
    })
}

/// Describes the errors with this status, each with its code and meaning.
fn meanings(status: u16) -> String {
    let codes = ErrorCode::ALL.iter().filter(|(_, statuses, _)| statuses.contains(&status));
    let lines = codes.map(|(code, _, meaning)| format!("`{}`: {}", code.as_str(), meaning.trim()));
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty(), "no code has the status {status}");
    lines.join(" ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with its expected text. With `PGFRESH_WRITE_DOCS`, writes the text first.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("PGFRESH_WRITE_DOCS").is_some() {
        fs::write(path, expected).unwrap();
    }
    let written = fs::read_to_string(path).unwrap();
    let command = "PGFRESH_WRITE_DOCS=1 cargo test -p pgfresh-contract";
    assert!(written == expected, "{command} writes {}", path.display());
}

/// Appends a value as JSON. A short value is written on one line.
fn write(value: &Value, indent: usize, text: &mut String) {
    let line = value.to_string();
    let (open, items, close): (_, Vec<_>, _) = match value {
        _ if line.len() + indent < WIDTH => return text.push_str(&line),
        Value::Object(members) => {
            ('{', members.iter().map(|(name, value)| (format!("{}: ", json!(name)), value)).collect(), '}')
        }
        Value::Array(items) => ('[', items.iter().map(|value| (String::new(), value)).collect(), ']'),
        _ => return text.push_str(&line),
    };
    text.push(open);
    for (number, (name, value)) in items.into_iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(text, "{comma}\n{:width$}{name}", "", width = indent + 1).unwrap();
        write(value, indent + 1, text);
    }
    write!(text, "\n{:indent$}{close}", "").unwrap();
}

#[test]
fn openapi_file_describes_the_types() {
    let mut text = String::new();
    write(&document(), 0, &mut text);
    text.push('\n');
    check(&root().join("crates/contract/openapi.json"), &text);
}

/// Replaces the rows of the table with the header `header`.
fn with_table(page: &str, header: &str, rows: &str) -> String {
    let start = page.find(header).unwrap_or_else(|| panic!("docs/http.md has no table {header}"));
    let end = page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1);
    format!("{}{header}\n{rows}{}", &page[..start], &page[end..])
}

#[test]
fn http_page_lists_all_codes_and_remedies() {
    let path = root().join("docs/http.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut codes = String::new();
    for (code, statuses, meaning) in ErrorCode::ALL {
        let statuses: Vec<_> = statuses.iter().map(ToString::to_string).collect();
        writeln!(codes, "| `{}` | {} | {} |", code.as_str(), statuses.join(", "), meaning.trim()).unwrap();
    }
    let mut remedies = String::new();
    for (remedy, meaning) in Remedy::ALL {
        writeln!(remedies, "| `{}` | {} |", remedy.as_str().unwrap(), meaning.trim()).unwrap();
    }
    let page = with_table(&page, "| code | status | reason |\n|---|---|---|", &codes);
    let page = with_table(&page, "| remedy | what to do |\n|---|---|", &remedies);
    check(&path, &page);
}
