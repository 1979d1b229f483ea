-- Production's columns, each with the matching column in this database. "number" identifies an index column without a known name.
CREATE TEMP TABLE column_match AS
SELECT p.ord, m.oid AS relation, a.attnum AS number, coalesce(e.type, a.atttypid) AS type, a.atttypid AS stored_type,
       a.attcollation AS collation
FROM production_column p JOIN relation_match m ON m.ord = p.relation
     LEFT JOIN pg_attribute a ON a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND (a.attname = p.name OR (p.name = '' AND a.attnum = p.number))
     LEFT JOIN expression_type e ON e.relation = m.oid AND e.number = a.attnum;
ANALYZE column_match;
-- An index, so that each batch of columns only reads its own rows.
CREATE INDEX ON production_column (ord);
ANALYZE production_column;

-- Types as ANALYZE treats them: a domain counts as its base type. "element" is the type of an array's elements, a tsvector's lexemes,
-- or a multirange's ranges.
CREATE TEMP TABLE column_type AS
WITH RECURSIVE chain(type, base) AS (
    SELECT DISTINCT type, type FROM column_match WHERE type IS NOT NULL
    UNION SELECT c.type, t.typbasetype FROM chain c JOIN pg_type t ON t.oid = c.base WHERE t.typtype = 'd'
), basic AS (
    SELECT c.type, c.base, t.typtype,
           CASE WHEN c.base = 3614 THEN 25 WHEN t.typlen = -1 AND t.typcategory = 'A' THEN t.typelem /* multirange */ END::oid AS element
    FROM chain c JOIN pg_type t ON t.oid = c.base WHERE t.typtype <> 'd'
), operand AS (
    SELECT base AS type FROM basic UNION SELECT element FROM basic WHERE element IS NOT NULL
), operand_base AS (
    SELECT o.type, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE o.type END AS base,
           CASE WHEN t.typtype = 'e' THEN 3500 WHEN t.typtype = 'c' THEN 2249 WHEN t.typtype = 'r' THEN 3831
                WHEN t.typtype = 'm' THEN 4537 WHEN t.typlen = -1 AND t.typcategory = 'A' THEN 2277 END::oid AS polymorphic
    FROM operand o JOIN pg_type t ON t.oid = o.type
), class AS (
    -- The default operator class, determined like in GetDefaultOpClass: for the type itself, or else for its polymorphic type, or
    -- else for a binary-compatible type, preferred types first.
    SELECT DISTINCT ON (b.type, c.opcmethod) b.type, c.opcmethod, c.opcfamily, c.opcintype
    FROM operand_base b CROSS JOIN pg_opclass c JOIN pg_type t ON t.oid = c.opcintype
    WHERE c.opcdefault AND c.opcmethod IN (403, 405)
          AND (c.opcintype IN (b.base, b.polymorphic)
               OR EXISTS (SELECT FROM pg_cast k WHERE k.castsource = b.base AND k.casttarget = c.opcintype
                          AND k.castmethod = 'b' AND k.castcontext = 'i'))
    ORDER BY b.type, c.opcmethod, (c.opcintype = b.base) DESC, (c.opcintype = b.polymorphic) DESC NULLS LAST,
             t.typispreferred DESC, c.oid
), operator AS (
    SELECT c.type, max(o.amopopr) FILTER (WHERE c.opcmethod = 403 AND o.amopstrategy = 1) AS less,
           coalesce(max(o.amopopr) FILTER (WHERE c.opcmethod = 403 AND o.amopstrategy = 3),
                    max(o.amopopr) FILTER (WHERE c.opcmethod = 405 AND o.amopstrategy = 1)) AS equal
    FROM class c JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
    GROUP BY c.type
)
SELECT b.type, b.base, b.typtype AS kind, b.element, coalesce(o.less, 0)::oid AS less, coalesce(o.equal, 0)::oid AS equal,
       coalesce(e.equal, 0)::oid AS element_equal
FROM basic b LEFT JOIN operator o ON o.type = b.base LEFT JOIN operator e ON e.type = b.element;

-- One row for each slot that can be written, with the operator and collation that ANALYZE would write. 672 is float8's operator <.
CREATE TEMP TABLE column_slot AS
SELECT s.ord, s.position, s.kind, s.numbers, s.vals,
       CASE WHEN s.kind = 1 THEN t.equal WHEN s.kind IN (2, 3) THEN t.less WHEN s.kind IN (4, 5) THEN t.element_equal
            WHEN s.kind = 6 THEN 672 ELSE 0 END::oid AS operator,
       CASE WHEN s.kind IN (6, 7) THEN 0 WHEN s.kind = 4 AND t.base = 3614 THEN 100 ELSE m.collation END::oid AS collation,
       CASE WHEN s.kind = 6 THEN 701 WHEN s.kind = 4 OR (s.kind = 7 AND t.kind = 'm') THEN t.element ELSE t.base END::oid AS element
FROM production_slot s JOIN column_match m ON m.ord = s.ord JOIN column_type t ON t.type = m.type;
DELETE FROM column_slot WHERE (operator = 0 AND kind <> 7) OR (vals IS NOT NULL AND coalesce(element, 0) = 0);
CREATE INDEX ON column_slot (ord);
CREATE INDEX ON column_match (ord);
ANALYZE column_slot;
DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM relation_match);
