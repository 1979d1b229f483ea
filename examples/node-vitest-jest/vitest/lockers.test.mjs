import { expect } from "vitest";
import { collect, store } from "../src/lockers.js";
import { test } from "./client.mjs";

test("the first parcel has number 1", async ({ client }) => {
  expect(await store(client, 2)).toEqual({ id: 1, locker: 3 });
});

test("a small parcel gets a large locker when no other is free", async ({ client }) => {
  const lockers = [];
  for (let parcel = 0; parcel < 4; parcel++) lockers.push((await store(client, 1)).locker);
  expect(lockers).toEqual([1, 2, 3, 4]);
  expect(await store(client, 1)).toBeUndefined();
});

// Concurrent tests do not meet: each has a database.
test.concurrent.for([1, 2, 3])("a parcel of size %d is collected once", async (size, { client }) => {
  const { id } = await store(client, size);
  expect(id).toBe(1);
  expect(await collect(client, id)).toBe(true);
  expect(await collect(client, id)).toBe(false);
});
