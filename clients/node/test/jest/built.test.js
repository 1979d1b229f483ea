const { existsSync } = require("node:fs");
const { useFreshDatabase } = require("../../src/jest.js");

const built = existsSync(process.env.BUILT);
const database = useFreshDatabase();

test("the template was there", () => {
  expect(built).toBe(true);
  expect(database.template).toBe("app");
});
