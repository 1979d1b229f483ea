//! Tests that template settings don't affect pgfresh's own sessions.

use std::time::Duration;

use server::VersionRequest;
use template::ServerOptions;

use crate::common::leases::{LeaseFixture, params};
use crate::common::{all_majors_since, postgres};

/// Template settings that apply to all sessions.
const SET: &str = "CREATE ROLE guest; ALTER ROLE postgres SET role = guest; ALTER ROLE postgres SET client_encoding = latin1; \
    ALTER ROLE postgres SET statement_timeout = '1ms'; ALTER ROLE postgres SET default_transaction_read_only = on; \
    ALTER ROLE postgres SET search_path = public; ALTER ROLE postgres SET default_transaction_isolation = serializable; \
    ALTER ROLE postgres SET datestyle = German; ALTER ROLE postgres SET default_tablespace = pg_default";

#[test]
fn own_sessions_ignore_template_settings() {
    for major in all_majors_since(0) {
        let installation: VersionRequest = postgres(major).parse().unwrap();
        let unbounded =
            if major < 17 { "" } else { "; ALTER ROLE postgres SET transaction_timeout = '200ms'" };
        let options = ServerOptions { installation, ..ServerOptions::default() };
        let setup = format!("CREATE TABLE t (id int); {SET}{unbounded}");
        let server = LeaseFixture::new(options, &setup, Duration::from_mins(10), false);
        let connected = server.connect_with("a", None, &params("postgres")).unwrap();
        for name in ["a", "postgres"] {
            let mut inspection = server.leases.inspect(name).unwrap();
            let sql = "SELECT current_user, current_setting('client_encoding'), current_setting('search_path'), \
                current_setting('transaction_isolation'), current_setting('transaction_read_only'), \
                current_setting('datestyle'), current_setting('default_tablespace'), pg_sleep(0.3)";
            let rows = inspection.session.query(sql).unwrap().concat();
            let rows: Vec<_> = rows.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
            let expected = ["postgres", "UTF8", "pg_catalog", "read committed", "off", "ISO, MDY", "", ""];
            assert_eq!(rows, expected, "{major} {name}");
        }
        drop(connected);
    }
}
