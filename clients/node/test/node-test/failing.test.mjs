import assert from "node:assert/strict";
import { test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";

test("passes", (t) => freshDatabase(t, { template: "shop" }));

test("fails", async (t) => {
  const database = await freshDatabase(t, { template: "shop" });
  assert.equal(database.template, "another");
});

test("fails after its database", async (t) => {
  await freshDatabase(t, { template: "shop" });
  throw new Error("the test fails");
});

test("passes again", (t) => freshDatabase(t, { template: "shop" }));
