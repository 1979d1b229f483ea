CREATE TABLE menu (drink text);
INSERT INTO menu VALUES ('a;b');
DO $$ BEGIN PERFORM 1; PERFORM 2; END $$;
