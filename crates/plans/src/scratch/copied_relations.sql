-- Relations of this database that can have statistics. Index definitions omit the index name, so that indexes can be matched by
-- definition.
CREATE TEMP TABLE template_relation AS
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind AS kind, t.relname::text AS table_name,
       i.indrelid AS table_oid, pg_temp.without_name(pg_get_indexdef(i.indexrelid), c.relname::text) AS definition
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_index i ON i.indexrelid = c.oid
     LEFT JOIN pg_class t ON t.oid = i.indrelid
WHERE c.relkind IN ('r', 'p', 'm', 'f', 'i', 'I') AND c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast');
UPDATE production_relation SET definition = pg_temp.without_name(definition, name) WHERE definition IS NOT NULL;
ANALYZE template_relation;
ANALYZE production_relation;
