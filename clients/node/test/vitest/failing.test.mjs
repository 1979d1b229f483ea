import { beforeEach, describe, expect } from "vitest";
import { test } from "../../src/vitest.mjs";

test.scoped({ freshOptions: { template: "shop" } });

test("passes", ({ freshDatabase }) => {
  expect(freshDatabase.template).toBe("shop");
});

test("fails", ({ freshDatabase }) => {
  expect(freshDatabase.template).toBe("another");
});

describe("with a hook", () => {
  beforeEach(({ freshDatabase }) => {
    throw new Error(`the hook fails in ${freshDatabase.name}`);
  });

  test("fails before it begins", ({ freshDatabase }) => {});
});

test("passes again", ({ freshUrl }) => {});
