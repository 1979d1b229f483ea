SET LOCAL lock_timeout = '2s';
UPDATE orders SET note = '' WHERE note IS NULL;
ALTER TABLE orders ALTER COLUMN note SET NOT NULL, ALTER COLUMN note TYPE varchar(40);
