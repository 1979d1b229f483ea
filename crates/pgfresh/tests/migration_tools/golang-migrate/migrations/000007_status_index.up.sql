-- PostgreSQL builds this index while other sessions write.
CREATE INDEX CONCURRENTLY orders_status ON orders (status);
