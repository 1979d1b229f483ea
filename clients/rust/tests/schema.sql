CREATE TABLE fruit (name text PRIMARY KEY);
