import { afterEach, onTestFinished } from "vitest";
import { test } from "../../src/vitest.mjs";
import { connect, end } from "../ending.js";

let client;

afterEach(() => client && end(client).then(() => (client = undefined)));

test("ends its connection in a hook of the file", async ({ freshUrl }) => {
  client = await connect(freshUrl);
});

test("ends its connection in a hook of the test", async ({ freshUrl }) => {
  const client = await connect(freshUrl);
  onTestFinished(() => end(client));
});
