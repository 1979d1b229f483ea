ALTER TABLE customers RENAME COLUMN email TO mail;
