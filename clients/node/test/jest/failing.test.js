const { useFreshDatabase } = require("../../src/jest.js");

const database = useFreshDatabase({ template: "shop" });

test("passes", () => {});

test("fails", () => {
  expect(database.template).toBe("another");
});

describe("with a hook", () => {
  beforeEach(() => {
    throw new Error("the hook fails");
  });

  test("fails before it begins", () => {});
});

test("passes again", () => {});
