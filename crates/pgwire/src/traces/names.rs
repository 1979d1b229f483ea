//! Lists of names for [`super::SessionTraces`], all of them sorted.

/// Built-in functions that leave no state in the backend. They are part of PostgreSQL itself (with the
/// language `internal` or `sql`), so the server doesn't load a library. They don't run SQL from their
/// arguments, and they change only session state that DISCARD ALL resets (such as sequences and advisory
/// locks). Expressions such as COALESCE are also included. Source: `pg_proc` of 13, 15 and 18.
#[rustfmt::skip]
pub(super) const FUNCTIONS: &[&str] = &[
    "abs", "acos", "acosd", "acosh", "age", "any_value", "array_agg", "array_append", "array_cat",
    "array_dims", "array_fill", "array_length", "array_lower", "array_ndims", "array_position",
    "array_positions", "array_prepend", "array_remove", "array_replace", "array_reverse", "array_sample",
    "array_shuffle", "array_sort", "array_to_json", "array_to_string", "array_upper", "ascii", "asin",
    "asind", "asinh", "atan", "atan2", "atan2d", "atand", "atanh", "avg", "bit", "bit_and", "bit_count",
    "bit_length", "bit_or", "bit_xor", "bool", "bool_and", "bool_or", "box", "bpchar", "btrim", "bytea",
    "cardinality", "cbrt", "ceil", "ceiling", "center", "char", "char_length", "character_length", "chr",
    "circle", "clock_timestamp", "coalesce", "col_description", "concat", "concat_ws", "corr", "cos",
    "cosd", "cosh", "cot", "cotd", "count", "covar_pop", "covar_samp", "cume_dist", "current_database",
    "current_date", "current_query", "current_schema", "current_schemas",
    "current_time", "current_timestamp", "currval", "date", "date_add", "date_bin", "date_part",
    "date_subtract", "date_trunc", "datemultirange", "daterange", "decode", "degrees", "dense_rank",
    "div", "encode", "enum_first", "enum_last", "enum_range", "erf", "erfc", "every", "exp", "extract",
    "factorial", "family", "first_value", "float4", "float8", "floor", "format", "format_type", "gcd",
    "gen_random_uuid", "generate_series", "generate_subscripts", "get_bit", "get_byte",
    "get_current_ts_config", "greatest", "grouping", "has_any_column_privilege", "has_column_privilege",
    "has_database_privilege", "has_foreign_data_wrapper_privilege", "has_function_privilege",
    "has_language_privilege", "has_largeobject_privilege", "has_parameter_privilege",
    "has_schema_privilege", "has_sequence_privilege", "has_server_privilege", "has_table_privilege",
    "has_tablespace_privilege", "has_type_privilege", "height", "host", "hostmask", "inet_client_addr",
    "inet_client_port", "inet_same_family", "inet_server_addr", "inet_server_port", "initcap", "int2",
    "int4", "int4multirange", "int4range", "int8", "int8multirange", "int8range", "interval", "isclosed",
    "isempty", "isfinite", "isopen", "json", "json_agg", "json_agg_strict", "json_array",
    "json_array_elements", "json_array_elements_text", "json_array_length", "json_arrayagg",
    "json_build_array", "json_build_object", "json_each", "json_each_text", "json_exists",
    "json_extract_path", "json_extract_path_text", "json_object", "json_object_agg",
    "json_object_agg_strict", "json_object_agg_unique", "json_object_agg_unique_strict",
    "json_object_keys", "json_objectagg", "json_populate_record", "json_populate_recordset",
    "json_query", "json_scalar", "json_serialize", "json_strip_nulls", "json_to_record",
    "json_to_recordset", "json_typeof", "json_value", "jsonb", "jsonb_agg", "jsonb_agg_strict",
    "jsonb_array_elements", "jsonb_array_elements_text", "jsonb_array_length", "jsonb_build_array",
    "jsonb_build_object", "jsonb_concat", "jsonb_contained", "jsonb_contains", "jsonb_delete",
    "jsonb_delete_path", "jsonb_each", "jsonb_each_text", "jsonb_exists", "jsonb_exists_all",
    "jsonb_exists_any", "jsonb_extract_path", "jsonb_extract_path_text", "jsonb_insert", "jsonb_object",
    "jsonb_object_agg", "jsonb_object_agg_strict", "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict", "jsonb_object_keys", "jsonb_path_exists", "jsonb_path_exists_tz",
    "jsonb_path_match", "jsonb_path_match_tz", "jsonb_path_query", "jsonb_path_query_array",
    "jsonb_path_query_array_tz", "jsonb_path_query_first", "jsonb_path_query_first_tz",
    "jsonb_path_query_tz", "jsonb_populate_record", "jsonb_populate_record_valid",
    "jsonb_populate_recordset", "jsonb_pretty", "jsonb_set", "jsonb_set_lax", "jsonb_strip_nulls",
    "jsonb_to_record", "jsonb_to_recordset", "jsonb_typeof", "justify_days", "justify_hours",
    "justify_interval", "lag", "last_value", "lastval", "lcm", "lead", "least", "left", "length", "line",
    "ln", "localtime", "localtimestamp", "log", "log10", "lower", "lower_inc", "lower_inf", "lpad",
    "lseg", "ltrim", "make_date", "make_interval", "make_time", "make_timestamp", "make_timestamptz",
    "masklen", "max", "md5", "min", "min_scale", "mod", "mode", "multirange", "name", "netmask",
    "network", "nextval", "normalize", "now", "npoints", "nth_value", "ntile", "nullif", "num_nonnulls",
    "num_nulls", "numeric", "nummultirange", "numnode", "numrange", "obj_description", "octet_length",
    "oid", "overlay", "parse_ident", "path", "percent_rank", "percentile_cont", "percentile_disc",
    "pg_advisory_lock", "pg_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared", "pg_advisory_xact_lock", "pg_advisory_xact_lock_shared",
    "pg_backend_pid", "pg_basetype", "pg_blocking_pids", "pg_char_to_encoding", "pg_client_encoding",
    "pg_collation_actual_version", "pg_collation_for", "pg_collation_is_visible",
    "pg_column_compression", "pg_column_is_updatable", "pg_column_size", "pg_conf_load_time",
    "pg_conversion_is_visible", "pg_current_snapshot", "pg_current_wal_flush_lsn",
    "pg_current_wal_insert_lsn", "pg_current_wal_lsn", "pg_current_xact_id",
    "pg_current_xact_id_if_assigned", "pg_database_size", "pg_describe_object", "pg_encoding_to_char",
    "pg_filenode_relation", "pg_function_is_visible", "pg_get_acl", "pg_get_constraintdef",
    "pg_get_expr", "pg_get_function_arg_default", "pg_get_function_arguments",
    "pg_get_function_identity_arguments", "pg_get_function_result", "pg_get_function_sqlbody",
    "pg_get_functiondef", "pg_get_indexdef", "pg_get_keywords", "pg_get_object_address",
    "pg_get_partition_constraintdef", "pg_get_partkeydef", "pg_get_ruledef", "pg_get_serial_sequence",
    "pg_get_statisticsobjdef", "pg_get_statisticsobjdef_columns", "pg_get_statisticsobjdef_expressions",
    "pg_get_triggerdef", "pg_get_userbyid", "pg_get_viewdef", "pg_has_role", "pg_identify_object",
    "pg_identify_object_as_address", "pg_index_column_has_property", "pg_index_has_property",
    "pg_indexam_has_property", "pg_indexes_size", "pg_input_error_info", "pg_input_is_valid",
    "pg_is_in_recovery", "pg_is_other_temp_schema", "pg_listening_channels",
    "pg_lsn", "pg_my_temp_schema", "pg_notification_queue_usage", "pg_notify", "pg_opclass_is_visible",
    "pg_operator_is_visible", "pg_opfamily_is_visible", "pg_options_to_table", "pg_partition_ancestors",
    "pg_partition_root", "pg_partition_tree", "pg_postmaster_start_time", "pg_relation_filenode",
    "pg_relation_filepath", "pg_relation_is_updatable", "pg_relation_size",
    "pg_safe_snapshot_blocking_pids", "pg_sequence_last_value", "pg_sequence_parameters",
    "pg_size_bytes", "pg_size_pretty", "pg_sleep", "pg_sleep_for", "pg_sleep_until",
    "pg_stat_clear_snapshot", "pg_stat_get_backend_idset", "pg_stat_get_dead_tuples",
    "pg_stat_get_live_tuples", "pg_stat_get_numscans", "pg_statistics_obj_is_visible",
    "pg_table_is_visible", "pg_table_size", "pg_tablespace_databases", "pg_tablespace_location",
    "pg_tablespace_size", "pg_total_relation_size", "pg_trigger_depth", "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared",
    "pg_ts_config_is_visible", "pg_ts_dict_is_visible", "pg_ts_parser_is_visible",
    "pg_ts_template_is_visible", "pg_type_is_visible", "pg_typeof", "pg_visible_in_snapshot",
    "pg_wal_lsn_diff", "pg_xact_commit_timestamp", "pg_xact_status", "pi", "point", "polygon", "popen",
    "position", "pow", "power", "quote_ident", "quote_literal", "quote_nullable", "radians", "radius",
    "random", "random_normal", "range_agg", "range_intersect_agg", "range_merge", "rank", "regclass",
    "regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_matches", "regexp_replace",
    "regexp_split_to_array", "regexp_split_to_table", "regexp_substr", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "repeat", "replace", "reverse", "right", "round", "row_number", "row_security_active", "row_to_json",
    "rpad", "rtrim", "scale", "set_bit", "set_byte", "set_masklen", "setval", "setweight", "sha224",
    "sha256", "sha384", "sha512", "shobj_description", "sign", "sin", "sind", "sinh", "slope",
    "split_part", "sqrt", "starts_with", "statement_timestamp", "stddev", "stddev_pop", "stddev_samp",
    "string_agg", "string_to_array", "string_to_table", "strip", "strpos", "substr", "substring", "sum",
    "tan", "tand", "tanh", "text", "time", "timeofday", "timestamp", "timestamptz", "timetz", "to_ascii",
    "to_bin", "to_char", "to_date", "to_hex", "to_json", "to_jsonb", "to_number", "to_oct",
    "to_regclass", "to_regcollation", "to_regnamespace", "to_regoper", "to_regoperator", "to_regproc",
    "to_regprocedure", "to_regrole", "to_regtype", "to_regtypemod", "to_timestamp",
    "transaction_timestamp", "translate", "trim", "trim_array", "trim_scale", "trunc", "ts_rank",
    "ts_rank_cd", "tsmultirange", "tsrange", "tstzmultirange", "tstzrange", "tsvector_to_array",
    "txid_current", "txid_current_if_assigned", "txid_current_snapshot", "txid_snapshot_xip",
    "txid_snapshot_xmax", "txid_snapshot_xmin", "txid_status", "txid_visible_in_snapshot", "unistr",
    "unnest", "upper", "upper_inc", "upper_inf", "uuid_extract_timestamp", "uuid_extract_version",
    "uuidv4", "uuidv7", "var_pop", "var_samp", "varbit", "varchar", "variance", "version", "width",
    "width_bucket",
];

/// Keywords and types that can precede a parenthesis without being called. Since no function that leaves
/// state has such a name, the position of these words doesn't matter. The list doesn't repeat words from
/// [`FUNCTIONS`].
#[rustfmt::skip]
pub(super) const KEYWORDS: &[&str] = &[
    "all", "and", "any", "array", "as", "asc", "bernoulli", "between", "bigint", "by", "case", "cast",
    "character", "check", "columns", "conflict", "copy", "cross", "cube", "current", "dec", "decimal",
    "default", "desc", "distinct", "else", "end", "escape", "except", "execute", "exists", "explain",
    "fetch", "filter", "first", "float", "for", "force_not_null", "force_null", "force_quote", "from",
    "full", "group", "having", "ilike", "in", "inner", "insert", "int", "integer", "intersect", "into",
    "is", "isnull", "join", "lateral", "like", "limit", "locked", "materialized", "natural", "nchar",
    "next", "not", "notnull", "nulls", "of", "offset", "on", "only", "operator", "or", "order", "outer",
    "over", "overlaps", "partition", "passing", "precision", "range", "real", "repeatable", "returning",
    "rollup", "row", "rows", "select", "set", "sets", "similar", "smallint", "some", "stdin", "stdout",
    "symmetric", "system", "table", "then", "ties", "to", "treat", "truncate", "union", "unique",
    "update", "using", "values", "variadic", "varying", "when", "where", "window", "with", "within",
    "zone",
];

/// Settings that RESET ALL (part of DISCARD ALL) resets and that don't make the server load a library. The
/// list excludes settings that load libraries (`jit`, `session_preload_libraries`, `dynamic_library_path`),
/// `seed`, which RESET ALL doesn't reset, settings that change how the server parses SQL, and settings that
/// tests don't use.
#[rustfmt::skip]
pub(super) const SETTINGS: &[&str] = &[
    "application_name", "array_nulls", "bytea_output", "check_function_bodies", "client_min_messages",
    "commit_delay", "commit_siblings", "constraint_exclusion", "cpu_index_tuple_cost",
    "cpu_operator_cost", "cpu_tuple_cost", "cursor_tuple_fraction", "datestyle", "deadlock_timeout",
    "debug_parallel_query", "default_statistics_target", "default_table_access_method",
    "default_tablespace", "default_text_search_config", "default_toast_compression",
    "default_transaction_deferrable", "default_transaction_isolation", "default_transaction_read_only",
    "effective_cache_size", "effective_io_concurrency", "enable_async_append", "enable_bitmapscan",
    "enable_distinct_reordering", "enable_gathermerge", "enable_group_by_reordering", "enable_hashagg",
    "enable_hashjoin", "enable_incremental_sort", "enable_indexonlyscan", "enable_indexscan",
    "enable_material", "enable_memoize", "enable_mergejoin", "enable_nestloop", "enable_parallel_append",
    "enable_parallel_hash", "enable_partition_pruning", "enable_partitionwise_aggregate",
    "enable_partitionwise_join", "enable_presorted_aggregate", "enable_self_join_elimination",
    "enable_seqscan", "enable_sort", "enable_tidscan", "escape_string_warning", "extra_float_digits",
    "force_parallel_mode", "from_collapse_limit", "geqo", "geqo_effort", "geqo_generations",
    "geqo_pool_size", "geqo_seed", "geqo_selection_bias", "geqo_threshold", "gin_fuzzy_search_limit",
    "gin_pending_list_limit", "hash_mem_multiplier", "idle_in_transaction_session_timeout",
    "idle_session_timeout", "intervalstyle", "join_collapse_limit", "lc_messages", "lc_monetary",
    "lc_numeric", "lc_time", "lock_timeout", "log_duration", "log_error_verbosity",
    "log_min_duration_statement", "log_min_error_statement", "log_min_messages", "log_statement",
    "maintenance_work_mem", "max_parallel_maintenance_workers", "max_parallel_workers",
    "max_parallel_workers_per_gather", "min_parallel_index_scan_size", "min_parallel_table_scan_size",
    "parallel_leader_participation", "parallel_setup_cost", "parallel_tuple_cost", "plan_cache_mode",
    "quote_all_identifiers", "random_page_cost", "row_security", "search_path", "seq_page_cost",
    "session_replication_role", "statement_timeout", "synchronize_seqscans", "synchronous_commit",
    "temp_tablespaces", "timezone", "track_io_timing", "transaction_deferrable", "transaction_isolation",
    "transaction_read_only", "transaction_timeout", "transform_null_equals", "vacuum_cost_delay",
    "work_mem", "xmlbinary", "xmloption",
];

/// Functions with one argument that leave state. A statement can call them without parentheses, as
/// `value.name`. Functions with common prefixes are in [`ATTRIBUTE_PREFIXES`].
#[rustfmt::skip]
pub(super) const ATTRIBUTES: &[&str] = &[
    "fmgr_c_validator", "pg_backup_start", "pg_backup_stop", "pg_cancel_backend",
    "pg_import_system_collations", "pg_promote", "pg_start_backup", "pg_stop_backup",
    "pg_terminate_backend", "phraseto_tsquery", "plainto_tsquery", "set_config", "setseed", "to_tsquery",
    "to_tsvector", "ts_debug", "ts_rewrite", "ts_stat", "websearch_to_tsquery",
];

/// Common prefixes of further functions that leave state and have one argument.
#[rustfmt::skip]
pub(super) const ATTRIBUTE_PREFIXES: &[&str] = &[
    "binary_upgrade_", "dblink", "lo_", "pg_create_", "pg_drop_", "pg_logical_",
    "pg_replication_origin_", "pg_stat_reset", "plpgsql_",
];

/// Functions that leave no state if their first argument is the configuration `simple`.
pub(super) const TEXT_SEARCH: &[&str] = &[
    "json_to_tsvector",
    "jsonb_to_tsvector",
    "phraseto_tsquery",
    "plainto_tsquery",
    "to_tsquery",
    "to_tsvector",
    "ts_headline",
    "websearch_to_tsquery",
];
