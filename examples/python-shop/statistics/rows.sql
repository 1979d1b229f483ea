-- Rows of a small shop, whose statistics make.py multiplies. Triggers and foreign keys are off, because they would take most of the time.
SET session_replication_role = replica;
DO $$ BEGIN PERFORM setseed(0.5); END $$;

INSERT INTO customers (id, email, name, phone, country_code, newsletter, created_at, closed_at) OVERRIDING SYSTEM VALUE
SELECT g, 'user' || g || '@example.com', 'User ' || g, CASE WHEN g % 3 = 0 THEN '+49 30 ' || g END,
    (array['DE', 'DE', 'DE', 'FR', 'GB', 'AT', 'CH', 'US'])[1 + g % 8], g % 4 = 0,
    timestamptz '2023-01-01' + g * interval '12 hours', CASE WHEN g % 40 = 0 THEN timestamptz '2026-01-01' END
FROM generate_series(1, 2000) g;
INSERT INTO addresses (id, customer_id, recipient, line1, postcode, city, country_code, created_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 2000, 'User ' || g, 'Street ' || g, (10000 + g % 900)::text, 'City ' || g % 300, 'DE',
    timestamptz '2023-01-01' + g * interval '10 hours'
FROM generate_series(1, 2600) g;
UPDATE customers SET default_address_id = id;
INSERT INTO suppliers (id, name, country_code) OVERRIDING SYSTEM VALUE
SELECT g, 'Supplier ' || g, 'DE' FROM generate_series(1, 40) g;
INSERT INTO categories (id, parent_id, name, slug, position) OVERRIDING SYSTEM VALUE
SELECT g, CASE WHEN g > 20 THEN 1 + g % 20 END, 'Category ' || g, 'category-' || g, g FROM generate_series(1, 200) g;
INSERT INTO products (id, supplier_id, name, slug, description, active, created_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 40, 'Product ' || g, 'product-' || g, repeat('Some words about product ' || g || '. ', 8), g % 10 > 0,
    timestamptz '2023-01-01' + g * interval '3 days'
FROM generate_series(1, 400) g;
INSERT INTO product_categories SELECT g, 1 + g % 200 FROM generate_series(1, 400) g;
INSERT INTO product_images (id, product_id, position, path) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 400, g / 400, 'images/' || g || '.jpg' FROM generate_series(1, 1600) g;
INSERT INTO variants (id, product_id, sku, attributes, weight_grams) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 400, 'SKU-' || g, jsonb_build_object('size', g % 9, 'colour', g % 30), g % 3000
FROM generate_series(1, 1200) g;
INSERT INTO prices (id, variant_id, currency_code, amount, valid_from, valid_to) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 1200, 'EUR', 100 + g % 9000, timestamptz '2023-01-01' + g / 1200 * interval '200 days',
    CASE WHEN g <= 4800 THEN timestamptz '2023-01-01' + (g / 1200 + 1) * interval '200 days' END
FROM generate_series(1, 6000) g;
INSERT INTO warehouses (id, code, name, country_code) OVERRIDING SYSTEM VALUE
SELECT g, 'WH' || g, 'Warehouse ' || g, 'DE' FROM generate_series(1, 6) g;
INSERT INTO stock SELECT w, v, 50 + v % 90, v % 7 FROM generate_series(1, 6) w, generate_series(1, 1200) v;
INSERT INTO stock_movements (id, warehouse_id, variant_id, quantity, reason, reference, created_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 6, 1 + g % 1200, -1, 'sale', 'order ' || g, timestamptz '2023-01-01' + g * interval '18 minutes'
FROM generate_series(1, 110000) g;
INSERT INTO carts (id, customer_id, status, currency_code, created_at, updated_at) OVERRIDING SYSTEM VALUE
SELECT g, CASE WHEN g % 3 > 0 THEN 1 + g % 2000 END, CASE WHEN g % 3 = 0 THEN 'ordered' ELSE 'abandoned' END::cart_status, 'EUR',
    timestamptz '2023-01-01' + g * interval '20 minutes', timestamptz '2023-01-01' + g * interval '20 minutes'
FROM generate_series(1, 100000) g;
INSERT INTO cart_items (id, cart_id, variant_id, quantity, added_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 100000, 1 + g % 1200, 1, timestamptz '2023-01-01' + g * interval '12 minutes' FROM generate_series(1, 160000) g;
INSERT INTO orders (id, customer_id, cart_id, address_id, status, currency_code, subtotal, tax, placed_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + (random() ^ 2 * 1999)::int, g, 1 + g % 2600,
    (CASE WHEN g > 47900 THEN 'pending' WHEN g % 20 = 0 THEN 'cancelled' WHEN g % 50 = 1 THEN 'refunded' ELSE 'delivered' END)::order_status,
    'EUR', 1000 + g % 30000, 190 + g % 5700, timestamptz '2023-01-01' + g * interval '42 minutes'
FROM generate_series(1, 48000) g;
INSERT INTO order_lines (id, order_id, position, variant_id, sku, description, quantity, unit_price, tax_rate) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 48000, 1 + g / 48000, 1 + g % 1200, 'SKU-' || g % 1200, 'Product ' || g % 400, 1, 1000, 0.19
FROM generate_series(1, 110000) g;
INSERT INTO order_events (id, order_id, new_status, at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 48000, 'delivered', timestamptz '2023-01-01' + g * interval '10 minutes' FROM generate_series(1, 190000) g;
INSERT INTO payments (id, order_id, idempotency_key, provider, provider_reference, amount, status, created_at, captured_at) OVERRIDING SYSTEM VALUE
SELECT g, g, 'key-' || md5(g::text), 'fake', 'ref-' || g, 1190 + g % 35700, 'captured',
    timestamptz '2023-01-01' + g * interval '42 minutes', timestamptz '2023-01-01' + g * interval '42 minutes'
FROM generate_series(1, 48000) g;
INSERT INTO refunds (id, payment_id, amount, reason, created_at) OVERRIDING SYSTEM VALUE
SELECT g, g * 30, 1000, 'returned', timestamptz '2023-01-01' + g * interval '15 hours' FROM generate_series(1, 1500) g;
INSERT INTO invoices (id, order_id, year, number, total, issued_at) OVERRIDING SYSTEM VALUE
SELECT g, g, 2023 + g / 12500, g, 1190, timestamptz '2023-01-01' + g * interval '42 minutes' FROM generate_series(1, 47000) g;
INSERT INTO shipments (id, order_id, warehouse_id, carrier_code, tracking_number, shipped_at, delivered_at) OVERRIDING SYSTEM VALUE
SELECT g, g, 1 + g % 6, 'DHL', 'T' || g, timestamptz '2023-01-02' + g * interval '42 minutes',
    timestamptz '2023-01-04' + g * interval '42 minutes'
FROM generate_series(1, 45000) g;
INSERT INTO shipment_lines SELECT 1 + g % 45000, g, 1 FROM generate_series(1, 100000) g;
INSERT INTO reservations (id, order_line_id, warehouse_id, quantity, shipped) OVERRIDING SYSTEM VALUE
SELECT g, g, 1 + g % 6, 1, 1 FROM generate_series(1, 110000) g;
INSERT INTO returns (id, order_id, status, reason, requested_at) OVERRIDING SYSTEM VALUE
SELECT g, g * 30, (SELECT max(unnest) FROM unnest(enum_range(NULL::return_status))), 'does not fit', timestamptz '2023-01-01' + g * interval '15 hours'
FROM generate_series(1, 1500) g;
INSERT INTO return_lines (id, return_id, order_line_id, quantity) OVERRIDING SYSTEM VALUE
SELECT g, g, g * 30, 1 FROM generate_series(1, 1500) g;
INSERT INTO reviews (id, product_id, customer_id, rating, title, body, status, created_at) OVERRIDING SYSTEM VALUE
SELECT g, 1 + g % 400, 1 + (7 * g + g / 400) % 2000, 1 + g % 5, 'Title ' || g, repeat('Some words of review ' || g || '. ', 6),
    (SELECT max(unnest) FROM unnest(enum_range(NULL::review_status))), timestamptz '2023-01-01' + g * interval '5 hours'
FROM generate_series(1, 6000) g;
INSERT INTO audit_log (id, table_name, row_key, action, old, new, actor, at) OVERRIDING SYSTEM VALUE
SELECT g, (array['orders', 'prices', 'products', 'customers'])[1 + g % 4], (g % 48000)::text, 'UPDATE', jsonb_build_object('id', g),
    jsonb_build_object('id', g, 'status', 'paid'), 'shop', timestamptz '2023-01-01' + g * interval '8 minutes'
FROM generate_series(1, 240000) g;
INSERT INTO outbox (id, topic, payload, attempts, created_at, processed_at) OVERRIDING SYSTEM VALUE
SELECT g, 'order.placed', jsonb_build_object('order', g), 1, timestamptz '2023-01-01' + g * interval '10 minutes',
    CASE WHEN g <= 199900 THEN timestamptz '2023-01-02' + g * interval '10 minutes' END
FROM generate_series(1, 200000) g;
INSERT INTO wishlists (id, customer_id, name, created_at) OVERRIDING SYSTEM VALUE
SELECT g, g, 'Wishes', timestamptz '2023-01-01' + g * interval '12 hours' FROM generate_series(1, 1500) g;
INSERT INTO wishlist_items SELECT 1 + g % 1500, 1 + g % 1200, timestamptz '2023-01-01' FROM generate_series(1, 5000) g ON CONFLICT DO NOTHING;
REFRESH MATERIALIZED VIEW product_ratings;
