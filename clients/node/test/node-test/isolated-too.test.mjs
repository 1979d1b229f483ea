import { test } from "node:test";

import pg from "pg";
import { freshDatabase } from "pgfresh/node-test";

for (const number of [1, 2, 3, 4]) {
  test(`test ${number} is alone`, async (t) => {
    const client = new pg.Client((await freshDatabase(t)).url);
    await client.connect();
    await client.query("CREATE TABLE only_mine ()");
    await client.end();
  });
}
