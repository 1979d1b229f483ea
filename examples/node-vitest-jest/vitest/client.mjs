// `test` with a connected client of `pg`.

import pg from "pg";
import { test as base } from "pgfresh/vitest";

export const test = base.extend({
  client: async ({ freshUrl }, use) => {
    const client = new pg.Client(freshUrl);
    await client.connect();
    await use(client);
    await client.end();
  },
});
