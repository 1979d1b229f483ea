CREATE TABLE item (id serial PRIMARY KEY, word text);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE later (n int, CONSTRAINT once UNIQUE (n) DEFERRABLE);
CREATE TABLE seed (n int);
INSERT INTO seed VALUES (1), (2);
CREATE SEQUENCE seeded START 42;
SELECT nextval('seeded');
CREATE SEQUENCE unused;
CREATE FUNCTION opens() RETURNS refcursor LANGUAGE plpgsql AS
    $$ DECLARE c refcursor := 'c'; BEGIN OPEN c FOR SELECT 1; RETURN c; END $$;
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
CREATE TYPE mood AS ENUM ('fine');
