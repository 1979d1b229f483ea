-- Rows about a database in the shared catalogs, and objects that CREATE DATABASE does not copy.
DO $$ DECLARE d text := current_database(); BEGIN
    EXECUTE format('ALTER DATABASE %I SET effective_cache_size = %L', d, '77MB');
    EXECUTE format('ALTER DATABASE %I SET app.tenant = %L', d, 'größer');
    EXECUTE format('ALTER ROLE guest IN DATABASE %I SET work_mem = %L', d, '9MB');
    EXECUTE format('COMMENT ON DATABASE %I IS %L', d, 'for tests');
    EXECUTE format('GRANT CREATE ON DATABASE %I TO guest', d);
    EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 200', d);
END $$;
