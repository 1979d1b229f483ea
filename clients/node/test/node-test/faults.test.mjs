import { test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";

import { fires, never, neverBySql } from "../faulty.js";

test("fires", async (t) => fires(await freshDatabase(t)));

test("never fires", async (t) => never(await freshDatabase(t)));

test("never fires by SQL", async (t) => neverBySql(await freshDatabase(t)));

test("fails anyhow", async (t) => {
  await never(await freshDatabase(t));
  throw new Error("by itself");
});

test("before a reset", async (t) => {
  const database = await freshDatabase(t);
  await database.fault("57P03", { at: "connect", duration: 500 });
  await database.reset();
});

test("skips", async (t) => {
  await never(await freshDatabase(t));
  t.skip();
});
