//! Lists all operations of the API.

use schemars::generate::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::{Operation, TEMPLATE};
use crate::{
    DatabaseDescription, DiffResponse, EndOfTest, FaultDescription, FaultList, FaultRequest, HoldResponse,
    InitializeRequest, IntegresqlResponse, LeaseRequest, LeaseResponse, Measurement, ReplicaRequest,
    ResetRequest, SnapshotRequest, SnapshotResponse, StatusResponse,
};

const DATABASE: &str = "/v1/databases/{name}";
const FAULTS: &str = "/v1/databases/{name}/faults";
const TEMPLATES: &str = "/api/v1/templates";

pub(super) fn all(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let mut all = leases(generator);
    all.extend(faults(generator));
    all.extend(servers(generator));
    all.extend(states(generator));
    all.extend(integresql(generator));
    all
}

/// Returns the operations that can follow an operation, using its result.
pub(super) fn links(id: &str) -> Option<Value> {
    let (next, parameters) = match id {
        "lease" => {
            let next = &[
                "look",
                "statements",
                "diff",
                "fault",
                "faults",
                "reset",
                "snapshot",
                "release",
                "restart",
                "stop",
                "crash",
                "setReplica",
                "promote",
            ][..];
            (next, json!({ "name": "$response.body#/name" }))
        }
        "initialize" => (&["finalize", "take", "discard"][..], json!({ "hash": "$request.body#/hash" })),
        "take" => (
            &["giveBack", "unlock", "recreate"][..],
            json!({ "hash": "$request.path.hash", "id": "$response.body#/id" }),
        ),
        _ => return None,
    };
    let link = |id: &&str| (String::from(*id), json!({ "operationId": id, "parameters": parameters }));
    Some(next.iter().map(link).collect::<Map<_, _>>().into())
}

fn leases(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let flag = json!({ "type": "boolean" });
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0, "maximum": 1000 });
    vec![
        Operation::new("POST", "/v1/databases", "lease", "Leases a fresh database")
            .body::<LeaseRequest>(generator, false)
            .json::<LeaseResponse>(generator, 201, "The database")
            .errors(&[404, 409]),
        Operation::new("GET", DATABASE, "look", "Describes a leased or kept database")
            .json::<DatabaseDescription>(generator, 200, "The database")
            .errors(&[404]),
        Operation::new("DELETE", DATABASE, "release", "Ends a lease")
            .query("failed", "Whether the test failed. pgfresh may then keep the database.", &flag)
            .query("test", "Name of the test. Only the first 1000 characters count.", &text)
            .budget()
            .json::<EndOfTest>(
                generator,
                200,
                "The database was kept, the test exceeded its budget, or a fault never fired",
            )
            .nothing("The lease is over")
            .errors(&[404, 409]),
        Operation::new(
            "GET",
            "/v1/databases/{name}/statements",
            "statements",
            "Describes the statements of the test, compared with a budget",
        )
        .budget()
        .json::<Measurement>(generator, 200, "The statements")
        .errors(&[404, 409]),
        Operation::new(
            "GET",
            "/v1/databases/{name}/diff",
            "diff",
            "Compares a database with a fresh copy of its template",
        )
        .query("table", "The only table to compare, maybe with its schema.", &text)
        .query("rows", "Maximum number of rows for each table.", &count)
        .query("tables", "Maximum number of tables.", &count)
        .query("template", "Template to compare with.", &json!({ "type": "string", "pattern": TEMPLATE }))
        .json::<DiffResponse>(generator, 200, "The differences")
        .errors(&[404, 409]),
        Operation::new("POST", "/v1/databases/{name}/reset", "reset", "Restores the state of the template")
            .body::<ResetRequest>(generator, false)
            .json::<EndOfTest>(
                generator,
                200,
                "The reset is done, and the test exceeded its budget, or a fault never fired",
            )
            .nothing("The reset is done")
            .errors(&[404, 409]),
        Operation::new("POST", "/v1/databases/{name}/snapshot", "snapshot", "Saves a database as a template")
            .body::<SnapshotRequest>(generator, true)
            .json::<SnapshotResponse>(generator, 201, "The template")
            .errors(&[404, 409]),
    ]
}

fn faults(generator: &mut SchemaGenerator) -> Vec<Operation> {
    vec![
        Operation::new("POST", FAULTS, "fault", "Requests a fault, which ends with the lease or its reset")
            .body::<FaultRequest>(generator, true)
            .json::<FaultDescription>(generator, 201, "The fault, which now applies to all open sessions")
            .errors(&[404, 409]),
        Operation::new("GET", FAULTS, "faults", "Lists the faults, and how often each has fired")
            .json::<FaultList>(generator, 200, "The faults")
            .errors(&[404]),
    ]
}

fn servers(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let act = |path, id, summary| {
        Operation::new("POST", path, id, summary).nothing("The server did so").errors(&[404, 409])
    };
    vec![
        act(
            "/v1/databases/{name}/restart",
            "restart",
            "Restarts the server of a lease in isolation `server`",
        ),
        act("/v1/databases/{name}/stop", "stop", "Stops the server of a lease in isolation `server`"),
        act("/v1/databases/{name}/crash", "crash", "Crashes the server of a lease in isolation `server`"),
        act("/v1/databases/{name}/replica", "setReplica", "Makes the replica of a lease's server lag")
            .body::<ReplicaRequest>(generator, true),
        act(
            "/v1/databases/{name}/promote",
            "promote",
            "Stops the server of a lease in isolation `server`, and promotes its replica",
        ),
    ]
}

fn states(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let text = json!({ "type": "string" });
    vec![
        Operation::new(
            "GET",
            "/v1/hold",
            "hold",
            "Names a holder, whose leases end with the connection of this request",
        )
        .json::<HoldResponse>(
            generator,
            200,
            "A line with the holder, and then nothing until the client closes the connection",
        ),
        Operation::new("GET", "/v1/status", "status", "Describes the server").json::<StatusResponse>(
            generator,
            200,
            "The current state",
        ),
        Operation::new("GET", "/v1/events", "events", "Describes the server every second")
            .text("text/event-stream", "Server-sent events, each with the JSON of `/v1/status`"),
        Operation::new("GET", "/v1/openapi.json", "openapi", "Returns this document")
            .json::<Map<String, Value>>(generator, 200, "The document"),
        Operation::new("GET", "/metrics", "metrics", "Returns the metrics for Prometheus")
            .text("text/plain", "The metrics, in text format 0.0.4"),
        Operation::new("GET", "/", "page", "Shows the live page")
            .query("token", "The secret, for a browser.", &text)
            .query("invitation", "An invitation of `pgfresh open`.", &text)
            .text("text/html", "The page"),
    ]
}

fn integresql(generator: &mut SchemaGenerator) -> Vec<Operation> {
    let test = |method, path, id, summary| {
        Operation::new(method, path, id, summary).nothing("The database is given back").errors(&[404])
    };
    vec![
        Operation::new("POST", TEMPLATES, "initialize", "integresql: makes a database to fill")
            .body::<InitializeRequest>(generator, true)
            .json::<IntegresqlResponse>(generator, 200, "The empty database")
            .errors(&[410, 423]),
        Operation::new(
            "PUT",
            "/api/v1/templates/{hash}",
            "finalize",
            "integresql: makes a template of the database",
        )
        .nothing("The database is a template")
        .errors(&[404, 409]),
        Operation::new("DELETE", "/api/v1/templates/{hash}", "discard", "integresql: removes a template")
            .nothing("The template and its databases are removed")
            .errors(&[404]),
        Operation::new("GET", "/api/v1/templates/{hash}/tests", "take", "integresql: leases a test database")
            .json::<IntegresqlResponse>(generator, 200, "The test database")
            .errors(&[404, 410]),
        test(
            "DELETE",
            "/api/v1/templates/{hash}/tests/{id}",
            "giveBack",
            "integresql: returns a test database",
        ),
        test(
            "POST",
            "/api/v1/templates/{hash}/tests/{id}/unlock",
            "unlock",
            "integresql: returns a test database that is unchanged",
        ),
        test(
            "POST",
            "/api/v1/templates/{hash}/tests/{id}/recreate",
            "recreate",
            "integresql: returns a test database that was changed",
        ),
        Operation::new(
            "DELETE",
            "/api/v1/admin/templates",
            "discardAll",
            "integresql: removes all templates",
        )
        .nothing("All templates are removed"),
    ]
}
