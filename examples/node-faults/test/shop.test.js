// Tests for both shops. SHOP=faulty selects the shop with bugs, which also passes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { freshDatabase } from "pgfresh/node-test";

const { Shop } = await import(`../src/${process.env.SHOP ?? "mended"}.js`);

async function newShop(t) {
  const shop = new Shop((await freshDatabase(t)).url);
  t.after(() => shop.close());
  return shop;
}

test("pay", async (t) => {
  assert.equal(await (await newShop(t)).pay("Ann", 4200), "Ann: thank you");
});

test("place", async (t) => {
  assert.equal(await (await newShop(t)).place("Carl", "lamp"), "Carl: we have your order");
});

test("ship", async (t) => {
  assert.equal(await (await newShop(t)).ship("Bob"), "Bob: on its way");
});

test("set price", async (t) => {
  assert.equal(await (await newShop(t)).setPrice("chair", 8900), 8900);
});

test("price", async (t) => {
  assert.equal(await (await newShop(t)).price("lamp"), 4200);
});
