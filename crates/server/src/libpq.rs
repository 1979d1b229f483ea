//! Lists libpq's environment variables that affect which server a program connects to, or how.

/// Variables that pgfresh removes from a program's environment before it adds its own server's address. All other
/// variables retain the user's values: PGAPPNAME, PGCLIENTENCODING, `PGCONNECT_TIMEOUT`, PGDATESTYLE, PGGEQO,
/// PGOAUTHDEBUG, PGOPTIONS and PGTZ.
///
/// Source: `PQconninfoOptions` in `src/interfaces/libpq/fe-connect.c` of version 18, and "Environment
/// Variables" in its manual. Drivers that don't use libpq read variables with the same names.
pub(crate) const MISLEADING: [&str; 34] = [
    "PGCHANNELBINDING",
    "PGDATABASE",
    "PGGSSDELEGATION",
    "PGGSSENCMODE",
    "PGGSSLIB",
    "PGHOST",
    "PGHOSTADDR",
    "PGKRBSRVNAME",
    "PGLOADBALANCEHOSTS",
    "PGMAXPROTOCOLVERSION",
    "PGMINPROTOCOLVERSION",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGPORT",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGREQUIRESSL",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLCERT",
    "PGSSLCERTMODE",
    "PGSSLCOMPRESSION",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGSSLKEY",
    "PGSSLMAXPROTOCOLVERSION",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMODE",
    "PGSSLNEGOTIATION",
    "PGSSLROOTCERT",
    "PGSSLSNI",
    "PGSYSCONFDIR",
    "PGTARGETSESSIONATTRS",
    "PGUSER",
];
