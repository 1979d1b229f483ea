//! Columns and indexes that depend on more than their row, although the server declares their built-in functions immutable.

/// Tables whose rows or indexes may differ from the template's after pgfresh has written the rows once more. A built-in function
/// computes something in them from more than the row:
///
/// - the text of a `float8`, of what is made of such numbers, or of a `bytea` (`extra_float_digits`, `bytea_output`); an identifier in
///   quotes (`quote_all_identifiers`); XML (`xmlbinary`);
/// - the words of a text, where text search was changed since initdb: it has made 19 mappings for each configuration, before any
///   transaction that `template0` has not frozen.
///
/// The query reads an expression as the server has stored it. Source: `nodeToString` of `src/backend/nodes/outfuncs.c`; 1282 is
/// `quote_ident`, 3734 and 3769 are `regconfig` and `regdictionary` of `src/include/catalog`.
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
