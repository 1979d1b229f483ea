-- Differences that plans must not show: numbers of columns, and tables that only production has.
ALTER TABLE customer DROP COLUMN note, ADD COLUMN old int, ADD COLUMN note varchar(100);
ALTER TABLE customer DROP COLUMN old;
ALTER TABLE account ADD COLUMN junk text;
ALTER TABLE account DROP COLUMN junk;
CREATE TABLE only_production (id int PRIMARY KEY, x text);

SELECT setseed(0.5);
INSERT INTO region SELECT g, 'region ' || g FROM generate_series(1, 5) g;
INSERT INTO nation SELECT g, 'nation ' || g, 1 + g % 5 FROM generate_series(1, 25) g;
INSERT INTO supplier SELECT g, 'supplier ' || g, 1 + (random() * 24)::int, random() * 10000 FROM generate_series(1, 500) g;
INSERT INTO customer (id, name, nation, segment, balance, note, phone)
    SELECT g, 'Customer ' || md5(g::text), 1 + (random() ^ 2 * 24)::int,
           (ARRAY['automobile', 'building', 'furniture', 'household', 'machinery'])[1 + (random() * 4)::int], random() * 10000 - 1000,
           CASE WHEN g % 3 = 0 THEN repeat('x', g % 90) END, '+' || g FROM generate_series(1, 6000) g;
INSERT INTO part SELECT g, 'part ' || (g % 900), 'brand ' || (g % 25), 1 + (random() * 49)::int, 900 + g % 1000,
           (ARRAY['box', 'can', 'drum'])[1 + g % 3] FROM generate_series(1, 8000) g;
INSERT INTO partsupp SELECT p, 1 + (p * 7 + s * 125) % 500, random() * 9999, random() * 1000 FROM generate_series(1, 8000) p, generate_series(0, 3) s;
INSERT INTO orders SELECT g, 1 + (random() ^ 3 * 5999)::int, (ARRAY['open', 'done', 'done', 'done', 'done', 'lost'])[1 + (random() * 5)::int],
           random() * 5000, date '2023-01-01' + (random() * 730)::int, (g % 5) || '-priority',
           CASE WHEN random() < 0.8 THEN timestamptz '2023-01-01' + random() * interval '730 days' END FROM generate_series(1, 40000) g;
INSERT INTO lineitem SELECT o, l, p, 1 + (p * 7 + l * 125) % 500, 1 + (random() * 49)::int, random() * 1000, (random() * 10)::int / 100.0,
           date '2023-01-01' + o / 55, (ARRAY['A', 'N', 'R'])[1 + o % 3]::"char"
    FROM generate_series(1, 40000) o, generate_series(1, 3) l, LATERAL (SELECT 1 + (random() * 7999)::int + o * 0 AS p) x;
REFRESH MATERIALIZED VIEW best;

INSERT INTO kind VALUES (1, 'movie'), (2, 'series'), (3, 'episode'), (4, 'short');
INSERT INTO title SELECT g, 'the ' || md5((g % 3000)::text) || ' of ' || (ARRAY['love', 'war', 'peace', 'money'])[1 + g % 4],
           1 + (random() ^ 2 * 3)::int, 1920 + (sqrt(random()) * 104)::int, CASE WHEN g % 4 = 0 THEN g % 12 END FROM generate_series(1, 20000) g;
INSERT INTO person SELECT g, 'Person ' || md5(g::text), (ARRAY['m', 'f'])[1 + g % 2]::"char" FROM generate_series(1, 15000) g;
INSERT INTO casting SELECT g, 1 + (random() ^ 2 * 19999)::int, 1 + (random() ^ 3 * 14999)::int, 1 + g % 11,
           CASE WHEN g % 7 = 0 THEN '(voice)' END FROM generate_series(1, 60000) g;
INSERT INTO keyword SELECT g, 'keyword-' || g FROM generate_series(1, 3000) g;
INSERT INTO title_keyword SELECT DISTINCT 1 + (random() * 19999)::int, 1 + (random() ^ 4 * 2999)::int FROM generate_series(1, 40000);
INSERT INTO info SELECT g, 1 + (random() * 19999)::int, 1 + g % 40, 'value ' || (random() ^ 2 * 1000)::int FROM generate_series(1, 50000) g;

INSERT INTO account (mail, mood, share, tags, ports, span, spot, address, attributes, couple, born, parent, code, flags, raw)
    SELECT 'user' || g || '@example.com', (ARRAY['sad', 'ok', 'ok', 'ok', 'happy', 'ecstatic'])[1 + (random() * 5)::int]::mood, random() * 100,
           ARRAY['t' || g % 50, 't' || (g * 7) % 300], ARRAY[g % 17, g % 1000], int4range(g % 1000, g % 1000 + 1 + g % 37),
           point(random() * 100, random() * 100), ('10.' || g % 200 || '.' || g % 50 || '.' || g % 255)::inet,
           jsonb_build_object('plan', g % 5, 'ref', g % 2000), ROW(g % 10, 'x')::pair, date '1950-01-01' + (random() * 20000)::int,
           CASE WHEN g % 20 = 0 THEN g / 2 END, md5(g::text)::uuid, (g % 16)::bit(4), decode(md5((g % 100)::text), 'hex')
    FROM generate_series(1, 25000) g;
INSERT INTO place SELECT g, 'city ' || z, 'zip ' || z, 'country ' || z / 40, g % 97, chr(65 + z % 26) || 'x'
    FROM (SELECT g, (random() ^ 2 * 199)::int AS z FROM generate_series(1, 20000) g) x;
INSERT INTO event SELECT timestamptz '2024-01-01' + g * interval '2 minutes', 1 + (random() ^ 2 * 24999)::int,
           (ARRAY['click', 'view', 'view', 'view', 'buy'])[1 + (random() * 4)::int], '{}', g FROM generate_series(1, 80000) g;
INSERT INTO tenant_row SELECT (ARRAY['a', 'a', 'b', 'c'])[1 + g % 4], g, g % 100 FROM generate_series(1, 20000) g;
INSERT INTO animal SELECT g, 'animal ' || g % 100, random() * 10 FROM generate_series(1, 3000) g;
INSERT INTO dog SELECT g, 'dog ' || g % 50, 5 + random() * 40, 'breed ' || g % 20 FROM generate_series(3001, 12000) g;
INSERT INTO cat SELECT g, 'cat ' || g % 70, 2 + random() * 6, 9 - g % 3 FROM generate_series(12001, 19000) g;
INSERT INTO secret SELECT g, 'reader_' || g % 40, g % 100, repeat('s', g % 50) FROM generate_series(1, 15000) g;
DELETE FROM orders WHERE id % 50 = 0 AND NOT EXISTS (SELECT FROM lineitem WHERE orderid = orders.id);
UPDATE customer SET balance = balance + 1 WHERE id % 7 = 0;
VACUUM ANALYZE;
UPDATE part SET size = size WHERE id % 3 = 0;
INSERT INTO info SELECT g, 1 + (random() * 19999)::int, 1 + g % 40, 'new' FROM generate_series(50001, 54000) g;
