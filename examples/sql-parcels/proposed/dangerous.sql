CREATE INDEX parcels_state ON parcels (state);

ALTER TABLE parcels ADD CONSTRAINT parcels_depot FOREIGN KEY (depot_id) REFERENCES depots (id);

ALTER TABLE parcels ALTER COLUMN grams SET NOT NULL;
