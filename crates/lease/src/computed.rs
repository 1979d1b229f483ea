//! Finds columns and indexes that depend on more than their row, although the server declares the built-in functions in them
//! immutable.

/// Tables whose rows or indexes can differ from the template's after pgfresh has written the rows again. In these tables, a
/// built-in function uses more than the row to compute a value:
///
/// - The text of a `float8`, of values made from such numbers, or of a `bytea` depends on `extra_float_digits` or `bytea_output`. A
///   quoted identifier depends on `quote_all_identifiers`, and XML depends on `xmlbinary`.
/// - The words of a text depend on the text search configurations, if these have changed since initdb. For each configuration,
///   initdb has made 19 mappings, before any transaction that `template0` has not frozen.
///
/// The query reads an expression in the form in which the server stores it. Source: `nodeToString` of
/// `src/backend/nodes/outfuncs.c`; 1282 is `quote_ident`, 3734 and 3769 are `regconfig` and `regdictionary` of
/// `src/include/catalog`.
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
