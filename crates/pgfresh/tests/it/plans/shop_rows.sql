SELECT setseed(0.5);
INSERT INTO customers
SELECT g, 'u' || g || '@example.com', 'n' || g, (array['de', 'fr', 'us'])[1 + g % 3],
    CASE WHEN g % 50 = 0 THEN timestamptz '2024-01-01' + g * interval '1 hour' END
FROM generate_series(1, 20000) g;
INSERT INTO orders
SELECT g, 1 + (random() * 19999)::int, (array['new', 'open', 'open', 'closed', 'closed', 'closed'])[1 + (random() * 5)::int],
    (random() * 1000)::int, timestamptz '2024-01-01' + g * interval '5 min', md5(g::text), array[g % 700, g % 1100],
    jsonb_build_object('k', g % 5000, 'z', g % 3), CASE WHEN g % 20 <> 0 THEN timestamptz '2025-01-01' END, g % 8
FROM generate_series(1, 160000) g;
INSERT INTO lines SELECT g, 1 + g % 160000, 's' || g % 20000, g % 10 FROM generate_series(1, 300000) g;
INSERT INTO events
SELECT g, timestamptz '2024-01-01' + g * interval '2 min', g % 500, md5(g::text) FROM generate_series(1, 200000) g;
