import { existsSync } from "node:fs";
import { expect } from "vitest";
import { test } from "../../src/vitest.mjs";

const built = existsSync(process.env.BUILT);

test("the template was there", ({ freshDatabase }) => {
  expect(built).toBe(true);
  expect(freshDatabase.template).toBe("app");
});
