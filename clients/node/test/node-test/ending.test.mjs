import { afterEach, test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";

import { connect, end } from "../ending.js";

let client;

afterEach(() => client && end(client).then(() => (client = undefined)));

test("ends its connection in a hook of the file", async (t) => {
  client = await connect((await freshDatabase(t)).url);
});

test("ends its connection in a hook of the test", async (t) => {
  const client = await connect((await freshDatabase(t)).url);
  t.after(() => end(client));
});
