//! Tests `run --plans`: its reports, budgets, exit codes and errors.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::suite::{Suite, plan};
use crate::common::{collect, wait_until};

const BY_CUSTOMER: &str = "SELECT id FROM orders WHERE customer_id = ?";
const QUERY: &str = "$psql -d one -c 'SELECT id FROM orders WHERE customer_id = 7'";

#[test]
fn reports_have_plan_suggestion_and_tests() {
    let suite = Suite::new(15);
    let files = ["r.html", "r.json", "r.md", "r.xml", "r.txt"];
    let options: Vec<_> = files.iter().flat_map(|file| ["--report", file]).collect();
    let outcome = suite.run(&options, &format!("{QUERY}; $pgfresh release one --test test_history"));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    for text in [
        "production's plans (statistics of 2026-11-20, 2 tables,",
        "1 test    SELECT id FROM orders WHERE customer_id = ?",
        "CREATE INDEX ON orders (customer_id)",
        "  in      test_history",
    ] {
        assert!(outcome.stderr.contains(text), "{text}: {outcome}");
    }
    let report = suite.json("r.json");
    let plan = plan(&report, BY_CUSTOMER);
    assert_eq!((&plan["table"], &plan["tests"]), (&json!("orders"), &json!(["test_history"])), "{report:#}");
    assert!(plan["node"].as_str().unwrap().ends_with("Seq Scan"), "{report:#}");
    assert_eq!((&plan["rows"], &plan["bytes"]), (&json!(48e6), &json!(4_294_967_296_u64)), "{report:#}");
    let suggestion = &plan["suggestion"];
    assert_eq!(suggestion["sql"], "CREATE INDEX ON orders (customer_id)", "{report:#}");
    let [before, after] = [&plan["cost"], &suggestion["cost"]].map(|cost| cost.as_f64().unwrap());
    assert!(
        before > 500_000.0 && after < 1000.0 && suggestion["bytes"].as_u64() > Some(100_000_000),
        "{report:#}"
    );
    assert!(suite.read("r.html").contains("<code>CREATE INDEX ON orders (customer_id)</code>"));
    assert!(suite.read("r.md").contains("## Suggested indexes"));
    assert!(suite.read("r.xml").contains("<testcase classname=\"pgfresh\" name=\"test_history\""));
    assert!(suite.read("r.txt").contains("Suggested indexes"));
}

#[test]
fn profile_and_plans_share_one_report() {
    let suite = Suite::new(15);
    let report = suite.report(&["--profile"], QUERY);
    plan(&report, BY_CUSTOMER);
    assert!(report["title"].as_str().unwrap().starts_with("Profile of"), "{report:#}");
    assert!(report["layers"].as_array().is_some_and(|layers| !layers.is_empty()), "{report:#}");
}

#[test]
fn budgets_for_plans_fail_the_run() {
    let suite = Suite::new(15);
    for (budget, limit) in [
        ("plan_cost = 1000", ", 1,000 allowed"),
        ("no_seq_scan_over = \"1GB\"", "sequential scan of 4.29 GB of orders, 1.00 GB allowed"),
    ] {
        let file = format!("[plans]\nstatistics = \"production.json\"\n[budget]\n{budget}\n");
        suite.scene.write("pgfresh.toml", &file);
        let outcome = suite.run(&["--report", "r.xml", "--quiet"], QUERY);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        let message = "pgfresh: 1 statement exceeds the budget for production's plans";
        assert!(outcome.stderr.contains(message) && outcome.stderr.contains(limit), "{outcome}");
        assert!(outcome.stderr.contains("1 test: one"), "{outcome}");
        assert!(suite.read("r.xml").contains("failures=\"1\""));
        // A failed command keeps its own exit code.
        let outcome = suite.run(&[], &format!("{QUERY}; exit 3"));
        assert!(outcome.code == Some(3) && outcome.stderr.contains(message), "{outcome}");
    }
    suite
        .scene
        .write("pgfresh.toml", "[plans]\nstatistics = \"production.json\"\n[budget]\nplan_cost = 99000000\n");
    assert_eq!(suite.run(&[], QUERY).code, Some(0));
}

#[test]
fn wrong_options_fail_before_the_command() {
    let suite = Suite::new(15);
    suite.scene.write("broken.json", "{}");
    for (options, message) in [
        (&["--statistics", "none.json"][..], "could not read \"none.json\": No such file or directory"),
        (&["--statistics", "broken.json"], "\"broken.json\" has no valid statistics"),
        (&["--plans-baseline", "none.json"], "could not read the baseline \"none.json\""),
        (&["--plans-baseline", "broken.json"], "could not read the baseline \"broken.json\""),
        (&["--update-baseline"], "cannot update a baseline: its file is not given"),
    ] {
        let outcome = suite.run(options, "touch ran");
        assert!(outcome.code == Some(125) && outcome.stderr.contains(message), "{options:?}: {outcome}");
    }
    suite.scene.write("pgfresh.toml", "");
    let outcome = suite.run(&[], "touch ran");
    assert!(outcome.code == Some(125) && outcome.stderr.contains("no production statistics"), "{outcome}");
    let outcome = suite.run(&["--compare"], "touch ran");
    assert!(outcome.code == Some(2) && outcome.stderr.contains("cannot be used with"), "{outcome}");
    assert!(!suite.scene.directory.join("ran").exists());
}

#[test]
fn foreign_statistics_and_empty_suites_are_said() {
    let suite = Suite::new(15);
    let mut statistics: Value = suite.json("production.json");
    for relation in statistics["relations"].as_array_mut().unwrap() {
        relation["schema"] = json!("elsewhere");
    }
    suite.scene.write("other.json", &statistics.to_string());
    let outcome = suite.run(&["--statistics", "other.json"], QUERY);
    let message =
        "the template has none of the tables in the statistics, which may come from a different database";
    let words: Vec<_> = outcome.stderr.split_whitespace().collect();
    assert!(outcome.code == Some(0) && words.join(" ").contains(message), "{outcome}");
    let outcome = suite.run(&[], "exit 4");
    assert!(outcome.code == Some(4) && outcome.stderr.contains("No session began"), "{outcome}");
}

#[test]
fn interrupted_run_has_no_report() {
    let suite = Suite::new(15);
    let words = suite.words(&["--report", "r.md"], &format!("{QUERY}; touch begun; exec sleep 600"));
    let mut command = suite.scene.pgfresh(words);
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the command", || suite.scene.directory.join("begun").exists());
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(130), "{outcome}");
    assert!(!outcome.stderr.contains("production's plans"), "{outcome}");
    assert!(!suite.scene.directory.join("r.md").exists());
}

#[test]
fn interrupted_explanation_leaves_nothing() {
    let suite = Suite::new(15);
    let words = suite.words(&["--report", "r.md"], &format!("{QUERY}; kill -STOP $PPID; "));
    let mut command = suite.scene.pgfresh(words);
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let stat = format!("/proc/{}/stat", child.id());
    wait_until("the end of the command", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
    });
    kill_process_group(pid, Signal::CONT).unwrap();
    // The explanation takes seconds, so the signal nearly always arrives before its end.
    kill_process_group(pid, Signal::TERM).unwrap();
    let outcome = collect(child);
    assert!(outcome.signal == Some(15) || outcome.code.is_some(), "{outcome}");
    suite.scene.assert_nothing_left("after a signal");
}
