-- Match relations by name first, and the remaining indexes by definition.
CREATE TEMP TABLE relation_match AS
SELECT DISTINCT ON (l.oid) l.oid, p.ord
FROM template_relation l JOIN production_relation p ON p.schema = l.schema AND p.name = l.name
WHERE p.kind IN (l.kind::text, '?')
      AND (l.table_name IS NULL OR (coalesce(p.table_name, l.table_name) = l.table_name
                                    AND coalesce(p.definition, l.definition) = l.definition))
ORDER BY l.oid, p.ord;
INSERT INTO relation_match
SELECT l.oid, p.ord
FROM (SELECT *, row_number() OVER (PARTITION BY schema, table_name, definition ORDER BY name) AS position
      FROM template_relation WHERE table_name IS NOT NULL AND oid NOT IN (SELECT oid FROM relation_match)) l
     JOIN
     (SELECT *, row_number() OVER (PARTITION BY schema, table_name, definition ORDER BY name) AS position
      FROM production_relation WHERE definition IS NOT NULL AND ord NOT IN (SELECT ord FROM relation_match)) p
     USING (schema, table_name, definition, position);
CREATE UNIQUE INDEX ON relation_match (ord);
CREATE UNIQUE INDEX ON relation_match (oid);
ANALYZE relation_match;

UPDATE pg_class c
SET relpages = CASE WHEN p.analyzed_pages > 2147483647 THEN p.analyzed_pages - 4294967296 ELSE p.analyzed_pages END::int4,
    reltuples = p.rows::float4,
    relallvisible = CASE WHEN p.all_visible > 2147483647 THEN p.all_visible - 4294967296 ELSE p.all_visible END::int4
FROM relation_match m JOIN production_relation p ON p.ord = m.ord
WHERE c.oid = m.oid;
