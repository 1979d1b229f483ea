-- Types and objects with statistics of each kind. Texts that contain "secret" are planted: no redacted file has them.
CREATE SCHEMA "Odd ""schema";
CREATE DOMAIN mail AS text CHECK (VALUE ~ '@');
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text, full_name varchar(40), country char(2),
    birth_date date, email_tags text[], login mail, mood mood, client_ip inet, token_document jsonb, dropped int,
    address_range int4range, search tsvector GENERATED ALWAYS AS (to_tsvector('simple', email)) STORED,
    phone bigint, paid money, at timestamptz, payload bytea, nick text, password_seconds interval
);
INSERT INTO users (email, full_name, country, birth_date, email_tags, login, mood, client_ip, token_document,
    address_range, phone, paid, at, payload, nick, password_seconds)
SELECT CASE WHEN g % 3 = 0 THEN 'Common-secret-01@example.com' ELSE 'user' || g || '@example.com' END,
    CASE WHEN g = 1 THEN 'aa secret-02 Lowest' ELSE 'Name "' || g || '" \ {,}' END,
    (ARRAY['de', 'fr', 'it'])[1 + g % 3], date '1907-03-04' + g % 9000,
    ARRAY['secret-03-' || g % 7, 's' || g % 5], 'secret-04-' || g % 20 || '@y', (ARRAY['sad', 'ok', 'happy'])[1 + g % 3]::mood,
    inet '198.51.100.7' + g % 40, jsonb_build_object('secret-05', g % 10), int4range(77700 + g % 100, 88800 + g % 50),
    4915112340000 + g % 30, (g % 100)::money, timestamptz '2026-01-01' + g * interval '1 h',
    decode(md5((g % 30)::text), 'hex'), CASE WHEN g % 3 = 0 THEN NULL ELSE 'secret-06-' || g % 4 END,
    interval '7 days 01:02:03' * (1 + g % 50)
FROM generate_series(1, 3000) g;
ALTER TABLE users DROP COLUMN dropped;
CREATE INDEX users_lower ON users (lower(email));
CREATE INDEX users_some ON users (country) WHERE email <> 'secret-07@example.com';
CREATE INDEX users_tags ON users USING gin (email_tags);
CREATE TABLE "Odd ""schema"."Tab le" (a int, b int, "C c" int);
INSERT INTO "Odd ""schema"."Tab le" SELECT g % 10, g % 10, g % 100 FROM generate_series(1, 2000) g;
CREATE STATISTICS "Odd ""schema".odd ON a, b, "C c" FROM "Odd ""schema"."Tab le";
CREATE STATISTICS of_users ON email, country FROM users;
CREATE TABLE visits (id int, region text, remark text) PARTITION BY LIST (region);
CREATE TABLE visits_a PARTITION OF visits FOR VALUES IN ('a');
CREATE TABLE visits_b PARTITION OF visits FOR VALUES IN ('b');
INSERT INTO visits SELECT g, CASE WHEN g % 3 = 0 THEN 'a' ELSE 'b' END, 'secret-08-' || g % 3 FROM generate_series(1, 900) g;
CREATE INDEX ON visits (remark);
CREATE TABLE never (x int);
CREATE MATERIALIZED VIEW totals AS SELECT country, count(*) FROM users GROUP BY 1;
VACUUM ANALYZE;
