use std::fs;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{self, Request};
use super::stand_in::{StandIn, TRANSCRIPTS};
use crate::server::{Environment, Server};
use crate::{Database, Error, FaultStatus, Moment, Options, Released, TestFault};

#[test]
fn client_follows_each_transcript() {
    let files = fs::read_dir(TRANSCRIPTS).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "json")).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        let folder = tempfile::tempdir().unwrap();
        Stage::new(&file, StandIn::new(folder.path())).play();
    }
}

/// Plays a transcript with the real client. The stage stands in for the server, and a script for the binary.
struct Stage {
    script: Value,
    binary: StandIn,
    next: Arc<Mutex<Next>>,
    server: Option<Arc<Server>>,
}

/// Step whose request hasn't arrived yet, and the error in the last request.
#[derive(Default)]
struct Next {
    step: Value,
    wrong: Option<String>,
}

impl Stage {
    fn new(file: &Path, binary: StandIn) -> Self {
        let next = Arc::new(Mutex::new(Next::default()));
        let waiting = Arc::clone(&next);
        let port = http::serve(move |request| answer(&mut waiting.lock().unwrap(), &request));
        let text = fs::read_to_string(file).unwrap();
        let script = serde_json::from_str(&text.replace("{port}", &port.to_string())).unwrap();
        Self { script, binary, next, server: None }
    }

    fn play(mut self) {
        let script = self.script.clone();
        let mut database = None;
        for step in script["steps"].as_array().unwrap() {
            self.next.lock().unwrap().step =
                if step["request"].is_null() { Value::Null } else { step.clone() };
            let done = self.execute(step, &mut database);
            let next = self.next.lock().unwrap();
            assert_eq!(next.wrong, None);
            assert_eq!(next.step, Value::Null, "no request has come");
            compare(step, done);
        }
        let log = self.binary.log();
        let starts: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("started ")).collect();
        assert_eq!(starts.len() as u64, script["spawned"].as_u64().unwrap());
        if let Some(arguments) = script["start"]["arguments"].as_array() {
            let arguments: Vec<&str> = arguments.iter().map(|text| text.as_str().unwrap()).collect();
            assert_eq!(starts, [arguments.join(" ")]);
        }
    }

    /// Executes a step, and returns the line that the client prints.
    fn execute(
        &mut self,
        step: &Value,
        database: &mut Option<ManuallyDrop<Database>>,
    ) -> Result<Option<String>, Error> {
        let with = &step["with"];
        match step["do"].as_str().unwrap() {
            "lease" => {
                let server = self.server()?;
                let option = |name: &str| with[name].as_str().map(str::to_owned);
                let (template, name, isolation) = (option("template"), option("name"), option("isolation"));
                let leased =
                    Options { template, name, isolation, ..Options::default() }.lease_from(&server)?;
                assert_eq!(fields_of(&leased), step["answer"]["body"]);
                *database = Some(ManuallyDrop::new(leased));
                Ok(None)
            }
            "reset" => {
                let database = database.as_mut().unwrap();
                // A reset request in a transcript doesn't contain a test name.
                database.test.get_mut().unwrap().clear();
                database.end_test(with["close_sessions"] == true).map(|()| None)
            }
            "fault" => database.as_ref().unwrap().fault(fault_of(with)).map(|()| None),
            "faults" => {
                let faults = database.as_ref().unwrap().faults()?;
                let listed: Vec<Value> = faults.iter().enumerate().map(described).collect();
                assert_eq!(json!(listed), step["answer"]["body"]["faults"]);
                Ok(None)
            }
            "lag" => {
                let lag = with["lag"].as_str().unwrap();
                database.as_ref().unwrap().set_replica_lag(lag).map(|()| None)
            }
            "promote" => database.as_ref().unwrap().promote_replica().map(|()| None),
            "check" => {
                let reason = database.as_ref().unwrap().check_faults();
                reason.map_or(Ok(None), |reason| Err(Error::new(reason)))
            }
            "release" => {
                let test = with["test"].as_str().unwrap_or_default();
                let Released { line, unfired } =
                    database.as_ref().unwrap().release(with["failed"] == true, test);
                unfired.map_or(Ok(line), |reason| Err(Error::new(reason)))
            }
            other => panic!("unknown step {other:?}"),
        }
    }

    fn server(&mut self) -> Result<Arc<Server>, Error> {
        if self.server.is_none() {
            self.server = Some(Arc::new(Server::join(&self.environment())?));
        }
        Ok(Arc::clone(self.server.as_ref().unwrap()))
    }

    fn environment(&self) -> Environment {
        let start = &self.script["start"];
        let mut environment = self.binary.environment(&start["line"].to_string());
        if let Some(code) = start["exit"].as_u64() {
            environment.insert("FAKE_EXIT".into(), code.to_string().into());
        }
        for (name, value) in self.script["environment"].as_object().into_iter().flatten() {
            environment.insert(name.into(), value.as_str().unwrap().into());
        }
        environment
    }
}

fn fields_of(database: &Database) -> Value {
    let mut fields = json!({
        "name": database.name(),
        "url": database.url(),
        "jdbc_url": database.jdbc_url(),
        "socket_url": database.socket_url(),
        "template": database.template(),
    });
    if let Some(url) = database.replica_url() {
        fields["replica_url"] = url.into();
    }
    fields
}

/// Returns the fault that the options `with` describe.
fn fault_of(with: &Value) -> TestFault {
    let text = |name: &str| with[name].as_str();
    let time = |name: &str| {
        let milliseconds = text(name)?.strip_suffix("ms").unwrap().parse().unwrap();
        Some(Duration::from_millis(milliseconds))
    };
    let mut fault = match (text("error"), text("connection"), text("bandwidth")) {
        (Some("failover"), ..) => TestFault::failover(),
        (Some(sqlstate), ..) => TestFault::error(sqlstate),
        (_, Some("lost"), _) => TestFault::connection_lost(),
        (_, Some("silent"), _) => TestFault::connection_silent(),
        (.., Some(rate)) => TestFault::bandwidth(rate),
        _ => TestFault::delay(time("delay").unwrap()),
    };
    fault = match text("at") {
        Some("commit") => fault.at(Moment::Commit),
        Some("after commit") => fault.at(Moment::AfterCommit),
        None => fault,
        Some(other) => panic!("unknown moment {other:?}"),
    };
    fault = text("statement").into_iter().fold(fault, TestFault::statement);
    fault = with["nth"].as_u64().into_iter().fold(fault, TestFault::nth);
    fault = with["times"].as_u64().into_iter().fold(fault, TestFault::times);
    fault = time("duration").into_iter().fold(fault, TestFault::duration);
    time("read_only").into_iter().fold(fault, TestFault::read_only)
}

/// Returns a fault in the form of a response.
fn described((at, status): (usize, &FaultStatus)) -> Value {
    let FaultStatus { text, times, fired, candidates, statements } = status;
    json!({
        "number": at + 1, "fault": text, "times": times, "fired": fired, "candidates": candidates, "statements": statements,
    })
}

fn compare(step: &Value, done: Result<Option<String>, Error>) {
    let raises = &step["raises"];
    let error = match done {
        Ok(printed) => {
            assert!(raises.is_null(), "{raises} is expected");
            return assert_eq!(printed.as_deref(), step["prints"].as_str());
        }
        Err(error) => error,
    };
    if let Some(begins) = raises["begins"].as_str() {
        assert!(error.to_string().starts_with(begins), "{error}");
        assert!(error.to_string().ends_with(raises["ends"].as_str().unwrap_or_default()), "{error}");
    } else {
        assert_eq!(Some(error.to_string().as_str()), raises["text"].as_str());
    }
    if let Some(message) = raises["message"].as_str() {
        assert_eq!(error.message, message);
        assert_eq!(error.code.as_deref(), raises["code"].as_str());
        assert_eq!(error.detail.as_deref(), raises["detail"].as_str());
        assert_eq!(error.hint.as_deref(), raises["hint"].as_str());
    }
}

fn answer(next: &mut Next, request: &Request) -> Option<(u64, Option<Value>)> {
    let step = next.step.take();
    let wanted = &step["request"];
    let came = json!([request.method, request.path, request.authorization, request.body]);
    let wanted =
        json!([wanted["method"], wanted["path"], "Bearer 5ec7e700000000000000000000000000", wanted["body"],]);
    if came != wanted {
        next.wrong = Some(format!("the request is {came}, expected {wanted}"));
    }
    let status = step["answer"]["status"].as_u64()?;
    Some((status, step["answer"].get("body").cloned()))
}

#[test]
fn drop_during_panic_reports_failed_test() {
    let released = Arc::new(Mutex::new(Vec::new()));
    let paths = Arc::clone(&released);
    let port = http::serve(move |request| {
        if request.method == "POST" {
            let name = request.body["name"].clone();
            return Some((
                201,
                Some(json!({"name": name, "url": "", "jdbc_url": "", "socket_url": "", "template": ""})),
            ));
        }
        paths.lock().unwrap().push(request.path);
        Some((204, None))
    });
    let control = format!("http://:secret@127.0.0.1:{port}");
    let server = Arc::new(Server::join(&[("PGFRESH_CONTROL".into(), control.into())].into()).unwrap());
    let lease = |name: &str| Options::default().name(name).lease_from(&server).unwrap();
    drop(lease("passed"));
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let _database = lease("failed");
        panic!("as a test does");
    }));
    assert!(failed.is_err());
    let test = "tests%3A%3Atranscripts%3A%3Adrop_during_panic_reports_failed_test";
    let expected = match thread::current().name() {
        Some("main") => ["/v1/databases/passed".to_owned(), "/v1/databases/failed?failed=true".to_owned()],
        _ => [
            format!("/v1/databases/passed?test={test}"),
            format!("/v1/databases/failed?failed=true&test={test}"),
        ],
    };
    assert_eq!(*released.lock().unwrap(), expected);
}
