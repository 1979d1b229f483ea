// Lockers for parcels: a parcel goes into the smallest free locker that is large enough.

"use strict";

// Stores a parcel. Resolves to its number and its locker, or to undefined if no locker is free.
async function store(client, size) {
  const { rows } = await client.query(
    `INSERT INTO parcel (size, locker)
     SELECT $1, id FROM locker
     WHERE size >= $1 AND NOT EXISTS (SELECT FROM parcel WHERE locker = locker.id)
     ORDER BY size, id LIMIT 1
     RETURNING id, locker`,
    [size],
  );
  return rows[0];
}

// Takes a parcel out. Resolves to whether it was there.
async function collect(client, parcel) {
  const { rowCount } = await client.query("DELETE FROM parcel WHERE id = $1", [parcel]);
  return rowCount === 1;
}

module.exports = { collect, store };
