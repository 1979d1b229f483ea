import pg from "pg";
import { expect } from "vitest";
import { test } from "../../src/vitest.mjs";

test.concurrent.for([1, 2, 3, 4])("test %d is alone", async (number, { freshDatabase, freshUrl }) => {
  expect(freshUrl).toBe(freshDatabase.url);
  const client = new pg.Client(freshUrl);
  await client.connect();
  await client.query("CREATE TABLE only_mine ()");
  await client.end();
});
