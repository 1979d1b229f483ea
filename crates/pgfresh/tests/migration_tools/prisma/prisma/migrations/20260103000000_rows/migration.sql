INSERT INTO customers (name) SELECT 'Customer ' || number FROM generate_series(1, 100) AS number;
INSERT INTO orders (customer_id, total) SELECT 1 + number % 100, number FROM generate_series(1, 1000) AS number;
