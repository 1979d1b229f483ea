//! Lists statements and the topics of their advice, for the tables in `advice.sql`. The suite's
//! statements are unknown.

/// Migration and its advice.
pub(super) struct Case {
    pub(super) first_major: u32,
    /// Statements. Each is a transaction, unless there are BEGIN and COMMIT.
    pub(super) statements: &'static [&'static str],
    /// Anchors of the advice, in the order of the statements.
    pub(super) topics: &'static str,
}

const TIMEOUT: &str = "SET lock_timeout = '2s'";

const fn case(statements: &'static [&'static str], topics: &'static str) -> Case {
    Case { first_major: 13, statements, topics }
}

const fn case_from(first_major: u32, statements: &'static [&'static str], topics: &'static str) -> Case {
    Case { first_major, statements, topics }
}

pub(super) const CASES: &[Case] = &[
    // Types
    case(&[TIMEOUT, "ALTER TABLE orders ALTER note TYPE varchar(40)"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders ALTER note TYPE text"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders ALTER COLUMN note SET DATA TYPE varchar(10)"], "type-change"),
    case(&[TIMEOUT, "ALTER TABLE public.orders ALTER total TYPE text USING total::text"], "type-change"),
    case(&[TIMEOUT, "ALTER TABLE orders ALTER status TYPE text"], "type-change"),
    case(&[TIMEOUT, "ALTER TABLE orders ALTER note TYPE varchar(40), ALTER total SET NOT NULL"], "not-null"),
    // New columns
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int NOT NULL DEFAULT 0, ADD b text"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a timestamptz DEFAULT now()"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a bigserial"], "default"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int GENERATED ALWAYS AS IDENTITY"], "default"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a timestamptz DEFAULT clock_timestamp()"], "default"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a positive"], "rewrite"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int REFERENCES customers"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int DEFAULT 1 REFERENCES customers"], "foreign-key"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int CHECK (a > 0)"], "check-constraint"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int UNIQUE"], "unique-constraint"),
    case(&[TIMEOUT, "23502! ALTER TABLE orders ADD COLUMN a int NOT NULL"], "not-null"),
    case(
        &[
            TIMEOUT,
            "ALTER TABLE orders ADD a int DEFAULT 0 NOT NULL",
            "ALTER TABLE orders ALTER a DROP DEFAULT",
        ],
        "not-null",
    ),
    case_from(18, &[TIMEOUT, "ALTER TABLE orders ADD COLUMN a int GENERATED ALWAYS AS (total + 1)"], ""),
    // Constraints
    case(&[TIMEOUT, "ALTER TABLE customers ADD EXCLUDE (id WITH =)"], "unique-constraint"),
    case(&[TIMEOUT, "ALTER DOMAIN positive ADD CONSTRAINT small CHECK (VALUE < 1000)"], "check-constraint"),
    case(&[TIMEOUT, "ALTER DOMAIN positive ADD CONSTRAINT small CHECK (VALUE < 1000) NOT VALID"], ""),
    case(
        &[
            TIMEOUT,
            "CREATE UNIQUE INDEX CONCURRENTLY u ON visits (id)",
            "ALTER TABLE visits ADD PRIMARY KEY USING INDEX u",
        ],
        "primary-key",
    ),
    case(&[TIMEOUT, "23502! ALTER TABLE customers ALTER plan SET NOT NULL"], "not-null"),
    case(&[TIMEOUT, "23514! ALTER TABLE orders ADD CHECK (total > 5)"], "check-constraint"),
    case(&[TIMEOUT, "23505! ALTER TABLE orders ADD UNIQUE (status)"], "unique-constraint"),
    case(&[TIMEOUT, "23503! ALTER TABLE orders ADD FOREIGN KEY (total) REFERENCES customers"], "foreign-key"),
    case(
        &[
            TIMEOUT,
            "BEGIN",
            "CREATE TABLE items (id int PRIMARY KEY, order_id bigint REFERENCES orders)",
            "ALTER TABLE items ADD FOREIGN KEY (id) REFERENCES customers",
            "CREATE INDEX ON items (order_id)",
            "COMMIT",
        ],
        "",
    ),
    case(
        &[
            TIMEOUT,
            "CREATE TABLE items (id int)",
            "INSERT INTO items VALUES (1)",
            "ALTER TABLE items ALTER id TYPE bigint",
        ],
        "",
    ),
    // Indexes
    case(&["DROP INDEX orders_status"], "index"),
    case(&["DROP INDEX CONCURRENTLY orders_status"], ""),
    case(&[TIMEOUT, "DROP INDEX orders_status"], ""),
    case(&[TIMEOUT, "REINDEX TABLE orders"], "index"),
    case(&[TIMEOUT, "REINDEX TABLE CONCURRENTLY orders"], ""),
    case(&["0A000! CREATE INDEX CONCURRENTLY i ON events (id)"], "index"),
    case(&["23505! CREATE UNIQUE INDEX CONCURRENTLY i ON orders (status)"], "index"),
    case(&["BEGIN", "25001! CREATE INDEX CONCURRENTLY i ON orders (total)", "COMMIT"], "one-transaction"),
    // Partitions
    case(
        &[
            TIMEOUT,
            "CREATE TABLE events_2027 PARTITION OF events FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
        ],
        "partition",
    ),
    case(&[TIMEOUT, "ALTER TABLE events DETACH PARTITION events_2025"], ""),
    case_from(
        14,
        &["DROP TABLE events_rest", "ALTER TABLE events DETACH PARTITION events_2025 CONCURRENTLY"],
        "table-drop lock-timeout",
    ),
    // Old code
    case(&[TIMEOUT, "ALTER TYPE order_status RENAME VALUE 'new' TO 'fresh'"], "enum"),
    case(&[TIMEOUT, "ALTER TYPE order_status ADD VALUE IF NOT EXISTS 'lost'"], ""),
    case(&[TIMEOUT, "CREATE SCHEMA archive", "ALTER TABLE orders SET SCHEMA archive"], "table-rename"),
    case(&[TIMEOUT, "ALTER TABLE orders ADD a int", "ALTER TABLE orders DROP a"], ""),
    case(&[TIMEOUT, "CREATE TABLE a (b int)", "ALTER TABLE a RENAME TO c", "DROP TABLE c"], ""),
    // Triggers, extensions and views
    case(&["CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION touch()"], "trigger"),
    case(&[TIMEOUT, "CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION touch()"], ""),
    case(&[TIMEOUT, "ALTER TABLE orders DISABLE TRIGGER ALL"], "trigger"),
    case(&[TIMEOUT, "DROP EXTENSION citext CASCADE"], "extension"),
    case(
        &[
            TIMEOUT,
            "BEGIN",
            "DROP MATERIALIZED VIEW customers_by_plan",
            "CREATE MATERIALIZED VIEW customers_by_plan AS SELECT plan FROM customers",
            "COMMIT",
        ],
        "materialized-view one-transaction",
    ),
    case(
        &[
            TIMEOUT,
            "CREATE MATERIALIZED VIEW by_plan AS SELECT plan FROM customers",
            "BEGIN",
            "ALTER MATERIALIZED VIEW customers_by_plan RENAME TO customers_by_plan_old",
            "ALTER MATERIALIZED VIEW by_plan RENAME TO customers_by_plan",
            "COMMIT",
            "DROP MATERIALIZED VIEW customers_by_plan_old",
        ],
        "",
    ),
    // Rows
    case(&["DELETE FROM orders WHERE total IS NULL"], "backfill"),
    case(&["DO $$ BEGIN UPDATE customers SET plan = 'free'; END $$"], "backfill"),
    case(&["DO $$ BEGIN UPDATE customers SET plan = 'free' WHERE id < 100; COMMIT; END $$"], ""),
    case(&["UPDATE orders SET total = 1 WHERE id = 7", "INSERT INTO visits VALUES (1, 'x')"], ""),
    case(
        &[
            "BEGIN",
            "UPDATE customers SET plan = 'free' WHERE id BETWEEN 1 AND 100",
            "UPDATE customers SET plan = 'free' WHERE id BETWEEN 101 AND 200",
            "COMMIT",
        ],
        "backfill",
    ),
    // Transactions
    case(&["ALTER TABLE orders ADD COLUMN a int", "ALTER TABLE orders ADD COLUMN b int"], "lock-timeout"),
    case(&["BEGIN", "SET LOCAL lock_timeout = '1s'", "ALTER TABLE orders ADD COLUMN a int", "COMMIT"], ""),
    case(&["SET lock_timeout = '1h'", "ALTER TABLE orders ADD COLUMN a int"], "lock-timeout"),
    case(
        &["BEGIN", "ALTER TABLE orders ADD COLUMN a int", "ALTER TABLE customers ADD COLUMN a int", "COMMIT"],
        "lock-timeout one-transaction",
    ),
    case(
        &[TIMEOUT, "BEGIN", "ALTER TABLE orders ADD COLUMN a int", "UPDATE orders SET a = total", "COMMIT"],
        "backfill one-transaction",
    ),
    case(
        &[
            TIMEOUT,
            "BEGIN",
            "ALTER TABLE orders ADD COLUMN a int",
            "CREATE INDEX ON orders (total)",
            "COMMIT",
        ],
        "index one-transaction",
    ),
    case(
        &[
            TIMEOUT,
            "BEGIN",
            "SAVEPOINT s",
            "LOCK TABLE customers",
            "ROLLBACK TO s",
            "ALTER TABLE orders ALTER total SET NOT NULL",
            "COMMIT",
        ],
        "not-null",
    ),
    // Indirect changes
    case(&[TIMEOUT, "ALTER SCHEMA public RENAME TO other"], "table-rename"),
    case(&[TIMEOUT, "DROP TYPE order_status CASCADE"], "table-drop"),
    case(&[TIMEOUT, "DO $$ BEGIN ALTER TABLE orders RENAME TO purchases; END $$"], "table-rename"),
    case(
        &[TIMEOUT, "DO $$ BEGIN ALTER TABLE orders RENAME COLUMN note TO remark; DROP TABLE visits; END $$"],
        "column-rename table-drop",
    ),
    case(&[TIMEOUT, "DO $$ BEGIN IF false THEN DROP TABLE visits; END IF; END $$"], ""),
    case(
        &[
            TIMEOUT,
            "DO $$ BEGIN ALTER TABLE orders RENAME TO purchases; CREATE VIEW orders AS SELECT * FROM purchases; END $$",
        ],
        "",
    ),
    case(
        &[
            TIMEOUT,
            "BEGIN",
            "CREATE TABLE orders_new (LIKE orders)",
            "ALTER TABLE orders RENAME TO orders_old",
            "ALTER TABLE orders_new RENAME TO orders",
            "COMMIT",
            "DROP TABLE orders_old",
        ],
        "",
    ),
    case(
        &[TIMEOUT, "ALTER TABLE orders ADD CONSTRAINT c CHECK (total > 0) NOT VALID, VALIDATE CONSTRAINT c"],
        "check-constraint",
    ),
    case(&[TIMEOUT, "ALTER TABLE events ADD CONSTRAINT k UNIQUE (id, at)"], "unique-constraint"),
    case(&[TIMEOUT, "CLUSTER orders USING orders_pkey"], "rewrite"),
    case(&[TIMEOUT, "ALTER TABLE orders SET UNLOGGED"], "rewrite"),
    case(
        &[
            TIMEOUT,
            "TRUNCATE visits",
            "LOCK TABLE orders",
            "ANALYZE orders",
            "COMMENT ON TABLE orders IS 'x'",
        ],
        "",
    ),
    case(&[TIMEOUT, "ALTER TABLE orders SET (fillfactor = 70)", "GRANT SELECT ON orders TO PUBLIC"], ""),
];
