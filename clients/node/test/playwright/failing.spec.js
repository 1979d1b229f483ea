const { expect, test } = require("../../src/playwright.js");

test.use({ freshOptions: { template: "shop" } });

test("passes", ({ freshWorkerDatabase }) => {
  expect(freshWorkerDatabase.template).toBe("shop");
});

test.describe("in a group", () => {
  test("fails", () => {
    throw new Error("by itself");
  });
});

test("fails as expected", () => {
  test.fail();
  throw new Error("by itself");
});

test("is skipped", () => {
  test.skip();
});
