CREATE INDEX CONCURRENTLY parcels_state ON parcels (state);

SET lock_timeout = '2s';

ALTER TABLE parcels ADD CONSTRAINT parcels_depot FOREIGN KEY (depot_id) REFERENCES depots (id) NOT VALID;
ALTER TABLE parcels VALIDATE CONSTRAINT parcels_depot;

ALTER TABLE parcels ADD CONSTRAINT parcels_grams CHECK (grams IS NOT NULL) NOT VALID;
ALTER TABLE parcels VALIDATE CONSTRAINT parcels_grams;
ALTER TABLE parcels ALTER COLUMN grams SET NOT NULL;
ALTER TABLE parcels DROP CONSTRAINT parcels_grams;
