const { useFreshDatabase } = require("../../src/jest.js");

const database = useFreshDatabase();
const outside = /^the database exists only in a test and in its beforeEach and afterEach hooks/;

expect(() => database.url).toThrow(outside);
beforeAll(() => expect(() => database.name).toThrow(outside));
afterAll(() => expect(() => database.url).toThrow(outside));

test("has a database", () => expect(database.url).toMatch(/^postgresql:/));

test.concurrent("has none", async () => {
  expect(() => database.url).toThrow(outside);
  await expect(database.reset()).rejects.toThrow(outside);
});
