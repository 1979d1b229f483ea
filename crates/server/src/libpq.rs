//! Environment variables of libpq that decide which server a program reaches, or on what conditions.

/// Variables to remove from the environment of a program that is to reach our server, before ours are set. A program sees its user's
/// values of all others: PGAPPNAME, PGCLIENTENCODING, `PGCONNECT_TIMEOUT`, PGDATESTYLE, PGGEQO, PGOAUTHDEBUG, PGOPTIONS and PGTZ.
///
/// Source: `PQconninfoOptions` in `src/interfaces/libpq/fe-connect.c` of 18, and "Environment Variables" in its manual. Drivers that
/// are not libpq read the same names.
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
