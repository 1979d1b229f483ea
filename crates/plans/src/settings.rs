//! Lists the settings that influence the planner.

/// Names of planner settings. Settings that begin with [`SWITCH`] also count.
pub(crate) const SETTINGS: [&str; 36] = [
    "constraint_exclusion",
    "cpu_index_tuple_cost",
    "cpu_operator_cost",
    "cpu_tuple_cost",
    "cursor_tuple_fraction",
    "debug_parallel_query",
    "default_statistics_target",
    "effective_cache_size",
    "effective_io_concurrency",
    "force_parallel_mode",
    "from_collapse_limit",
    "geqo",
    "geqo_effort",
    "geqo_generations",
    "geqo_pool_size",
    "geqo_seed",
    "geqo_selection_bias",
    "geqo_threshold",
    "hash_mem_multiplier",
    "jit",
    "jit_above_cost",
    "jit_inline_above_cost",
    "jit_optimize_above_cost",
    "join_collapse_limit",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "min_parallel_index_scan_size",
    "min_parallel_table_scan_size",
    "parallel_leader_participation",
    "parallel_setup_cost",
    "parallel_tuple_cost",
    "plan_cache_mode",
    "random_page_cost",
    "recursive_worktable_factor",
    "seq_page_cost",
    "work_mem",
];
/// Prefix of the settings that switch plan types on and off.
pub(crate) const SWITCH: &str = "enable_";
/// Maximum length of a setting's value.
const VALUE: usize = 40;

/// Returns true if the setting `name` influences the planner.
pub(crate) fn is_planner_setting(name: &str) -> bool {
    let is_switch = |rest: &str| {
        !rest.is_empty() && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    SETTINGS.contains(&name) || name.strip_prefix(SWITCH).is_some_and(is_switch)
}

/// Returns true if `value` is a word, or a number with or without a unit.
pub(crate) fn is_plausible_value(value: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    (1..=VALUE).contains(&value.len()) && value.bytes().all(is_part)
}
