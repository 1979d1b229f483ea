//! Determines the order of findings in a report.

use report::Finding;

/// Name of the finding about databases that the suite creates with SQL.
pub(crate) const DATABASES: &str = "Tests create and drop databases with SQL";
/// Name of the finding about new sessions, whose remedy is a connection pool.
pub(crate) const SESSIONS: &str = "Tests open many sessions";

/// Sorts findings by their gain, largest first. Fresh databases always come before a pool, because a pool doesn't work
/// across the databases that a suite creates.
pub(crate) fn rank(findings: &mut Vec<Finding>) {
    Finding::rank(findings);
    let at = |name| findings.iter().position(|finding| finding.name == name);
    if let (Some(databases), Some(sessions)) = (at(DATABASES), at(SESSIONS))
        && sessions < databases
    {
        let finding = findings.remove(databases);
        findings.insert(sessions, finding);
    }
}
