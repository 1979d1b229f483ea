-- Tables of a wholesaler, in the manner of TPC-H.
CREATE TABLE region (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE nation (id int PRIMARY KEY, name text NOT NULL, region int NOT NULL REFERENCES region);
CREATE TABLE supplier (id int PRIMARY KEY, name text NOT NULL, nation int NOT NULL REFERENCES nation, balance numeric(12,2));
CREATE TABLE customer (
    id int PRIMARY KEY, name text NOT NULL, nation int NOT NULL REFERENCES nation, segment text, balance numeric(12,2),
    note varchar(100), phone text);
CREATE INDEX customer_nation ON customer (nation);
CREATE INDEX customer_lower ON customer (lower(name));
CREATE TABLE part (id int PRIMARY KEY, name text, brand text, size int, price numeric(10,2), container char(10));
CREATE INDEX part_brand_size ON part (brand, size);
CREATE TABLE partsupp (part int REFERENCES part, supplier int REFERENCES supplier, quantity int, cost float8, PRIMARY KEY (part, supplier));
CREATE TABLE orders (
    id int PRIMARY KEY, customer int NOT NULL REFERENCES customer, status text NOT NULL, total numeric(12,2), placed date NOT NULL,
    priority text, shipped timestamptz);
CREATE INDEX orders_customer ON orders (customer);
CREATE INDEX orders_placed ON orders (placed);
CREATE INDEX orders_open ON orders (placed) WHERE status = 'open';
CREATE INDEX orders_shipped ON orders (shipped DESC NULLS LAST) INCLUDE (total);
CREATE TABLE lineitem (
    orderid int NOT NULL REFERENCES orders, line int NOT NULL, part int, supplier int, quantity int, price numeric(12,2),
    discount numeric(4,2), shipped date, flag "char", PRIMARY KEY (orderid, line));
CREATE INDEX lineitem_part ON lineitem (part, supplier);
CREATE INDEX lineitem_shipped ON lineitem USING brin (shipped) WITH (pages_per_range = 16);
CREATE STATISTICS lineitem_keys (ndistinct, dependencies) ON part, supplier FROM lineitem;
CREATE VIEW revenue AS
    SELECT o.id, o.customer, sum(l.price * (1 - l.discount)) AS revenue FROM orders o JOIN lineitem l ON l.orderid = o.id GROUP BY 1, 2;
CREATE MATERIALIZED VIEW best AS SELECT customer, count(*) AS orders, max(total) AS most FROM orders GROUP BY 1;
CREATE UNIQUE INDEX best_customer ON best (customer);

-- Films, in the manner of the Join Order Benchmark.
CREATE TABLE kind (id int PRIMARY KEY, kind text UNIQUE);
CREATE TABLE title (id int PRIMARY KEY, title text, kind int REFERENCES kind, year int, season int);
CREATE INDEX title_year ON title (year);
CREATE INDEX title_words ON title USING gin (to_tsvector('english', title));
CREATE TABLE person (id int PRIMARY KEY, name text, gender "char");
CREATE INDEX person_name ON person (name text_pattern_ops);
CREATE TABLE casting (id int PRIMARY KEY, title int REFERENCES title, person int REFERENCES person, role int, note text);
CREATE INDEX casting_title ON casting (title);
CREATE INDEX casting_person ON casting (person);
CREATE TABLE keyword (id int PRIMARY KEY, keyword text);
CREATE INDEX keyword_hash ON keyword USING hash (keyword);
CREATE TABLE title_keyword (title int, keyword int, PRIMARY KEY (title, keyword));
CREATE INDEX title_keyword_keyword ON title_keyword (keyword);
CREATE TABLE info (id int PRIMARY KEY, title int, kind int, value text);
CREATE INDEX info_title ON info (title, kind);

-- Types, kinds of indexes, and kinds of tables.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'ecstatic');
CREATE DOMAIN email AS text CHECK (VALUE LIKE '%@%');
CREATE DOMAIN percentage AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mail email, mood mood, share percentage, tags text[], ports int[],
    span int4range, spot point, address inet, attributes jsonb, couple pair, born date, parent bigint, code uuid, flags bit(4), raw bytea);
CREATE UNIQUE INDEX account_mail ON account (lower(mail));
CREATE INDEX account_tags ON account USING gin (tags);
CREATE INDEX account_ports ON account USING gin (ports);
CREATE INDEX account_attributes ON account USING gin (attributes jsonb_path_ops);
CREATE INDEX account_span ON account USING gist (span);
CREATE INDEX account_spot ON account USING gist (spot);
CREATE INDEX account_address ON account USING spgist (address);
CREATE INDEX account_mood ON account (mood, share) WHERE mood <> 'ok';
CREATE INDEX account_parent ON account (parent) WHERE parent IS NOT NULL;
CREATE TABLE place (id int PRIMARY KEY, city text, zip text, country text, area int, code char(2));
CREATE STATISTICS place_all (ndistinct, dependencies, mcv) ON city, zip, country FROM place;
CREATE TABLE event (at timestamptz NOT NULL, account bigint, kind text, payload jsonb, id bigint NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM ('2024-03-01') TO ('2024-04-01') PARTITION BY HASH (account);
CREATE TABLE event_3a PARTITION OF event_3 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE event_3b PARTITION OF event_3 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE event_rest PARTITION OF event DEFAULT;
CREATE INDEX event_account ON event (account, at);
CREATE INDEX event_at ON event USING brin (at);
CREATE TABLE tenant_row (tenant text NOT NULL, id int, value int) PARTITION BY LIST (tenant);
CREATE TABLE tenant_a PARTITION OF tenant_row FOR VALUES IN ('a');
CREATE TABLE tenant_b PARTITION OF tenant_row FOR VALUES IN ('b', 'c');
CREATE INDEX tenant_row_id ON tenant_row (id);
CREATE TABLE animal (id int PRIMARY KEY, name text, weight float8);
CREATE TABLE dog (breed text) INHERITS (animal);
CREATE TABLE cat (lives int) INHERITS (animal);
CREATE INDEX dog_id ON dog (id);
CREATE INDEX cat_weight ON cat (weight);
CREATE TABLE secret (id int PRIMARY KEY, owner text NOT NULL, level int, body text);
CREATE INDEX secret_owner ON secret (owner);
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE ROLE reader;
CREATE POLICY own ON secret FOR SELECT TO reader USING (owner = current_user || '_' || (level % 10) OR level < 3);
GRANT SELECT ON secret, orders, customer TO reader;
CREATE FUNCTION recent(days int) RETURNS date LANGUAGE sql IMMUTABLE AS 'SELECT date ''2024-12-31'' - days';
CREATE FUNCTION orders_of(wanted int) RETURNS SETOF orders LANGUAGE sql STABLE AS 'SELECT * FROM orders WHERE customer = wanted';
