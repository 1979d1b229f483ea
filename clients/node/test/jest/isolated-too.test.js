const pg = require("pg");
const { useFreshDatabase } = require("../../src/jest.js");

const database = useFreshDatabase();
const ports = new Set();

test.each([1, 2, 3, 4])("test %d is alone", async () => {
  const client = new pg.Client(database.url);
  await client.connect();
  await client.query("CREATE TABLE only_mine ()");
  await client.end();
  await database.reset({ closeSessions: true });
  ports.add(new URL(database.url).port);
  expect(ports.size).toBe(1);
});
