//! Builds queries for objects whose expressions call functions with side
//! effects, or functions whose result depends on more than the row.
//!
//! The gateway infers what a session leaves behind from the text of its statements (`pgwire::SessionTraces`).
//! But a statement can use a view, a default, a constraint, a policy or an operator, and the text doesn't show which
//! functions these call. So if a database has objects that call functions with side effects, each of its backends
//! serves only one client.

/// Selects whether any object not created by initdb may leave something behind in a backend that uses the object. Any
/// user-defined function is assumed to. An expression or operator is assumed to if it calls one of these built-in
/// functions:
///
/// - Volatile functions, except those listed as harmless. For example, `setseed`, `set_config` and `lo_open` leave
///   something behind.
/// - Functions that load a library (functions in C, for encodings, or for text search), and functions for XML, which
///   run SQL.
///
/// A view on `pg_settings` also counts, because an update through the view changes settings.
///
/// `pg_depend` doesn't record built-in functions, so the query searches expressions in their stored form. Source:
/// `nodeToString` in `src/backend/nodes/outfuncs.c`; 13 is the C language in `src/include/catalog/pg_language.dat`. The
/// query uses `to_jsonb` to read columns that exist only in some major versions.
pub(crate) const MAY_LEAVE_TRACES: &str = "WITH leaving(oid) AS (SELECT oid FROM pg_proc WHERE oid < 16384 AND (prolang = 13 \
      OR provolatile = 'v' AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) AND proname !~ '^(\
random|random_normal|array_sample|array_shuffle|clock_timestamp|timeofday|timezone|current_query|currval|lastval|nextval|setval|\
gen_random_uuid|uuidv[47]|pg_advisory_.*|pg_try_advisory_.*|pg_sleep|pg_sleep_for|pg_sleep_until|pg_notify|pg_stat_get_.*|\
pg_stat_clear_snapshot|pg_lock_status|pg_[a-z_]*_size|pg_current_wal_[a-z_]*lsn|pg_is_in_recovery|pg_partition_ancestors|\
pg_partition_tree|pg_blocking_pids|pg_safe_snapshot_blocking_pids|pg_xact_status|pg_xact_commit_timestamp|txid_status|\
pg_sequence_last_value|pg_notification_queue_usage)$' \
      OR proname ~ '^(to_tsvector|jsonb?_to_tsvector|.*to_tsquery|ts_headline|ts_lexize|ts_debug|ts_match_t[tq]|tsvector_update_trigger.*|\
.*_to_xml.*|convert|convert_from|convert_to)$')), \
    tree(text) AS ( \
      SELECT concat(ev_action, ev_qual) FROM pg_rewrite WHERE oid >= 16384 \
      UNION ALL SELECT adbin::text FROM pg_attrdef WHERE oid >= 16384 \
      UNION ALL SELECT conbin::text FROM pg_constraint WHERE oid >= 16384 \
      UNION ALL SELECT typdefaultbin::text FROM pg_type WHERE oid >= 16384 \
      UNION ALL SELECT concat(polqual, polwithcheck) FROM pg_policy WHERE oid >= 16384 \
      UNION ALL SELECT concat(indexprs, indpred) FROM pg_index WHERE indexrelid >= 16384 \
      UNION ALL SELECT tgqual::text FROM pg_trigger WHERE oid >= 16384 \
      UNION ALL SELECT partexprs::text FROM pg_partitioned_table \
      UNION ALL SELECT to_jsonb(s) ->> 'stxexprs' FROM pg_statistic_ext s \
      UNION ALL SELECT to_jsonb(p) ->> 'prqual' FROM pg_publication_rel p), \
    used(oid) AS ( \
      SELECT found[1]::oid FROM tree CROSS JOIN LATERAL \
        regexp_matches(text, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\\d+)', 'g') found \
      UNION SELECT unnest(ARRAY[oprcode, oprrest, oprjoin]::oid[]) FROM pg_operator WHERE oid >= 16384 \
      UNION SELECT castfunc FROM pg_cast WHERE oid >= 16384 \
      UNION SELECT amproc FROM pg_amproc WHERE oid >= 16384 \
      UNION SELECT conproc FROM pg_conversion WHERE oid >= 16384 \
      UNION SELECT tgfoid FROM pg_trigger WHERE oid >= 16384) \
    SELECT EXISTS (SELECT FROM pg_proc WHERE oid >= 16384) OR EXISTS (SELECT FROM used JOIN leaving USING (oid)) \
      OR EXISTS (SELECT FROM tree WHERE text LIKE format('%%:relid %s %%', 'pg_catalog.pg_settings'::regclass::oid))";

/// Selects tables that pgfresh must not refill, because their rows or indexes could then differ from the template's. In
/// these tables, a built-in function computes a value that also depends on state outside the row:
///
/// - The text of a `float8` (or of a value composed of such numbers) depends on `extra_float_digits`, and that of a
///   `bytea` on `bytea_output`. A quoted identifier depends on `quote_all_identifiers`, and XML depends on `xmlbinary`.
/// - The lexemes of a text depend on the text search configurations, so these matter if they were changed after initdb
///   (which creates 19 mappings for each). All rows from initdb are older than any transaction that `template0`
///   hasn't frozen.
///
/// The query searches expressions in their stored form. Source: `nodeToString` in `src/backend/nodes/outfuncs.c`; 1282
/// is `quote_ident`, and 3734 and 3769 are `regconfig` and `regdictionary` in `src/include/catalog`.
pub(crate) const DEPENDENT: &str = "WITH expression(rel, tree) AS ( \
    SELECT f.adrelid, f.adbin::text FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum \
      WHERE a.attgenerated <> '' \
    UNION ALL SELECT indrelid, concat(indexprs, indpred) FROM pg_index WHERE indexprs IS NOT NULL OR indpred IS NOT NULL), \
    made(xid) AS (SELECT max(xid) FROM ( \
      SELECT xmin::text::int8 FROM pg_ts_config UNION ALL SELECT xmin::text::int8 FROM pg_ts_config_map \
      UNION ALL SELECT xmin::text::int8 FROM pg_ts_dict UNION ALL SELECT xmin::text::int8 FROM pg_ts_template \
      UNION ALL SELECT xmin::text::int8 FROM pg_ts_parser) x(xid)), \
    words(are_others) AS (SELECT made.xid >= datfrozenxid::text::int8 \
      OR (SELECT count(*) FROM pg_ts_config_map) <> 19 * (SELECT count(*) FROM pg_ts_config) \
      FROM pg_database, made WHERE datname = 'template0') \
    SELECT rel FROM expression WHERE rel >= 16384 AND (tree ~ '\\{XMLEXPR|:funcid 1282 ' \
      OR tree ~ '\\{COERCEVIAIO|\\{JSONCONSTRUCTOREXPR|type 2275 ' AND tree ~ 'type (17|60[0-4]|628|70[01]|718) ' \
      OR tree ~ ':consttype (3734|3769) ' AND coalesce((SELECT are_others FROM words), true))";
