const { test } = require("../../src/playwright.js");
const { fires, never, neverBySql } = require("../faulty.js");

test("fires", ({ freshWorkerDatabase }) => fires(freshWorkerDatabase));

test("is skipped", async ({ freshWorkerDatabase }) => {
  await never(freshWorkerDatabase);
  test.skip();
});

test("passes after a skipped test", ({ freshWorkerDatabase }) => fires(freshWorkerDatabase));

test("never fires", ({ freshWorkerDatabase }) => never(freshWorkerDatabase));

test("fails anyhow", async ({ freshWorkerDatabase }) => {
  await never(freshWorkerDatabase);
  throw new Error("by itself");
});

test("never fires by SQL", ({ freshWorkerDatabase }) => neverBySql(freshWorkerDatabase));

test("passes before the failure of its reset", async () => {});
