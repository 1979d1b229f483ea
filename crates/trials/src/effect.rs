//! Distinguishes queries that only read from queries that may write.

use pgwire::{SqlLexer, Token, begins_with, has_words};

/// Words that can precede a parenthesis without being a function, in alphabetical order: keywords, and types with a
/// length.
const KEYWORDS: &str = "all and any array as between bit by case cast char character check coalesce cube decimal \
    distinct else exists extract filter float for from full greatest group grouping having if ilike in inner \
    interval into is join key lateral least left like limit materialized not nullif numeric of offset on only or order \
    over overlaps overlay partition position precision range returning right rollup row rows select set sets similar \
    some substring table then time timestamp timestamptz treat trim union except intersect unique using values \
    varbit varchar varying when where window with within xmlagg xmlelement xmlforest";

/// Built-in functions that don't write rows, in alphabetical order. A function missing here only costs a few more
/// faults.
const FUNCTIONS: &str = "abs age array_agg array_append array_cat array_length array_position array_remove \
    array_to_json array_to_string array_upper ascii avg bool_and bool_or btrim cardinality ceil ceiling char_length \
    chr clock_timestamp col_description concat concat_ws corr count cume_dist currval current_database current_schema \
    current_schemas current_setting date date_bin date_part date_trunc decode dense_rank digest encode every exp \
    first_value floor format format_type gen_random_uuid generate_series generate_subscripts \
    has_schema_privilege has_table_privilege hashtext initcap inet_server_addr inet_server_port isfinite json_agg \
    json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each json_each_text \
    json_extract_path json_extract_path_text json_object_agg json_object_keys json_strip_nulls json_typeof \
    jsonb_agg jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array \
    jsonb_build_object jsonb_each jsonb_each_text jsonb_exists jsonb_extract_path jsonb_extract_path_text jsonb_object_agg \
    jsonb_object_keys jsonb_path_exists jsonb_path_query jsonb_path_query_array jsonb_path_query_first \
    jsonb_set jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof justify_days justify_hours \
    justify_interval lag last_value lastval lead length ln localtimestamp log lower lpad ltrim make_date make_interval \
    make_timestamp make_timestamptz max md5 min mod mode nextval now nth_value ntile numnode obj_description \
    octet_length percent_rank percentile_cont percentile_disc phraseto_tsquery plainto_tsquery power quote_ident quote_literal \
    random rank regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table repeat \
    replace reverse round row_number row_to_json rpad rtrim set_config setseed setval setweight sha256 \
    shobj_description sign similarity split_part sqrt starts_with statement_timestamp stddev stddev_pop \
    stddev_samp string_agg string_to_array strpos substr sum timeofday timezone to_char to_date to_json to_jsonb \
    to_number to_regclass to_regtype to_timestamp to_tsquery to_tsvector transaction_timestamp translate trunc ts_headline ts_rank \
    ts_rank_cd txid_current unaccent unnest upper uuid_generate_v4 uuidv4 uuidv7 var_pop var_samp variance version \
    websearch_to_tsquery width_bucket word_similarity";

/// Effect of a query on the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryEffect {
    /// Doesn't read user tables. It only looks something up in a catalog, pings the server, or reads a setting.
    LookUp,
    /// Only reads user tables.
    Read,
    /// Stores its rows, locks rows in order to change them, or calls a function that may write.
    MayWrite,
}

impl QueryEffect {
    /// Determines the effect of `query` from its text alone.
    pub(crate) fn of(query: &str) -> Self {
        let mut lexer = SqlLexer::new(query.as_bytes(), true);
        let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).collect();
        let is_call = |place: usize| tokens.get(place + 1).is_some_and(|next| next.is_sign(b'('));
        let names = || tokens.iter().enumerate().filter_map(|(place, token)| Some((place, token.name()?)));
        if names().any(|(place, name)| is_of_catalog(&name) && !is_call(place)) {
            return Self::LookUp;
        }
        let calls_unknown = names().any(|(place, name)| {
            is_call(place) && !follows_alias_word(&tokens[..place]) && !only_reads(&name)
        });
        if calls_unknown || locks_or_stores(query) {
            return Self::MayWrite;
        }
        let asks_system = names().any(|(_, name)| {
            is_of_catalog(&name) || matches!(name.as_str(), "current_setting" | "set_config" | "version")
        });
        let reads =
            |token: &Token<'_>| token.is_word(b"from") || token.is_word(b"table") || token.is_sign(b'(');
        if asks_system || !tokens.iter().any(reads) { Self::LookUp } else { Self::Read }
    }
}

fn is_of_catalog(name: &str) -> bool {
    (name.starts_with("pg_") && !name.starts_with("pg_advisory") && name != "pg_notify")
        || name == "information_schema"
}

/// Returns true if the name after `before` is a subquery's name or an alias. Parentheses after such a name contain
/// column names.
fn follows_alias_word(before: &[Token<'_>]) -> bool {
    before.last().is_some_and(|last| {
        last.is_sign(b')') || [&b"as"[..], b"with", b"recursive"].iter().any(|word| last.is_word(word))
    })
}

/// Returns true if `name` is a keyword, a type, or a function that doesn't write rows.
fn only_reads(name: &str) -> bool {
    name.starts_with("pg_")
        || [KEYWORDS, FUNCTIONS].iter().any(|list| list.split(' ').any(|known| known == name))
}

/// Returns true if the query itself locks or stores rows, or is an EXPLAIN ANALYZE that runs a statement that writes.
fn locks_or_stores(query: &str) -> bool {
    let has = |word: &str| has_words(query, &[word]);
    let stores = has("into") || has_words(query, &["for", "update"]);
    if !begins_with(query, &["explain"]) {
        return stores;
    }
    has("analyze") && (stores || ["update", "delete", "execute"].into_iter().any(has))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_functions_may_write() {
        for query in [
            "SELECT pay(4200)",
            "SELECT s.\"Pay\"(4200) FROM t",
            "SELECT * FROM pay(4200) AS p(id)",
            "SELECT pay(current_setting('a')::int)",
            "VALUES (pay(1))",
            "SELECT a INTO t FROM u",
            "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
            "EXPLAIN (ANALYZE) DELETE FROM t",
            "SELECT a FROM t FOR UPDATE",
        ] {
            assert_eq!(QueryEffect::of(query), QueryEffect::MayWrite, "{query}");
        }
    }

    #[test]
    fn usual_functions_only_read() {
        for query in [
            "SELECT count(*), coalesce(max(a), 0) FROM t WHERE b IN (1, 2) AND c > now() - interval(3) '1 day'",
            "WITH RECURSIVE n(a) AS (VALUES (1)) SELECT a, x.b FROM n JOIN (VALUES (1)) x(b) USING (a)",
            "SELECT a::numeric(10, 2), row_number() OVER (PARTITION BY a) FROM t AS u(a, b)",
            "SELECT 'pay(1)' FROM t -- pay(1)",
            "SELECT nextval('s')",
            "EXPLAIN DELETE FROM t",
            "SELECT DISTINCT ON (a) a FROM t WHERE EXISTS (SELECT) AND a = ANY(ARRAY(SELECT 1))",
        ] {
            assert_eq!(QueryEffect::of(query), QueryEffect::Read, "{query}");
        }
    }

    #[test]
    fn catalogs_and_settings_are_look_ups() {
        for query in ["SELECT f(oid) FROM pg_type", "SELECT pg_backend_pid()", "SELECT version()", "SELECT 1"]
        {
            assert_eq!(QueryEffect::of(query), QueryEffect::LookUp, "{query}");
        }
    }
}
