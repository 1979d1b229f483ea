import { test } from "../../src/vitest.mjs";
import { fires, never, neverBySql } from "../faulty.js";

test("fires", ({ freshDatabase }) => fires(freshDatabase));

test("never fires", ({ freshDatabase }) => never(freshDatabase));

test("never fires by SQL", ({ freshDatabase }) => neverBySql(freshDatabase));

test("fails anyhow", async ({ freshDatabase }) => {
  await never(freshDatabase);
  throw new Error("by itself");
});

test("is skipped", async ({ freshDatabase, skip }) => {
  await never(freshDatabase);
  skip();
});

test("before a reset", async ({ freshDatabase }) => {
  await freshDatabase.fault("57P03", { at: "connect", duration: 500 });
  await freshDatabase.reset();
});
