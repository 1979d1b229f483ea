// Properties that fast-check checks, with a reset of the database for each example.

import fc from "fast-check";
import pg from "pg";
import { expect } from "vitest";
import { test } from "pgfresh/vitest";
import { collect, store } from "../src/lockers.js";

const size = fc.integer({ min: 1, max: 3 });
const actions = fc.array(fc.oneof(fc.record({ store: size }), fc.constant({ collect: true })), { maxLength: 12 });

test("no parcel gets a locker that is too small", { timeout: 120_000 }, async ({ freshDatabase }) => {
  const property = fc.asyncProperty(actions, async (actions) => {
    const client = new pg.Client(freshDatabase.url);
    await client.connect();
    try {
      const stored = [];
      for (const action of actions) {
        if (action.store) stored.push((await store(client, action.store))?.id);
        else if (stored.length) await collect(client, stored.shift());
      }
      const { rows } = await client.query("SELECT FROM parcel JOIN locker ON locker = locker.id WHERE locker.size < parcel.size");
      expect(rows).toEqual([]);
      const parcels = await client.query("SELECT id FROM parcel ORDER BY id");
      expect(parcels.rows.map(({ id }) => id)).toEqual(stored.filter((id) => id !== undefined));
    } finally {
      await client.end();
    }
  });
  await fc.assert(property.beforeEach(() => freshDatabase.reset({ closeSessions: true })), { numRuns: 30 });
});
