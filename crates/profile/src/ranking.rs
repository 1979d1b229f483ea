//! Order of findings.

use report::Finding;

/// Name of the finding about databases that a suite creates by SQL.
pub(crate) const DATABASES: &str = "Databases are made and dropped by SQL";
/// Name of the finding about new sessions, whose remedy is a pool.
pub(crate) const SESSIONS: &str = "Sessions are begun again and again";

/// Sorts findings, the greatest gain first. Fresh databases come before a pool, because no suite can use a pool across
/// the databases that it creates.
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
