const pg = require("pg");
const { useFreshDatabase } = require("pgfresh/jest");
const { collect, store } = require("../src/lockers.js");

const database = useFreshDatabase();
let client;

beforeEach(async () => {
  client = new pg.Client(database.url);
  await client.connect();
});

afterEach(() => client.end());

test("the first parcel has number 1", async () => {
  expect(await store(client, 2)).toEqual({ id: 1, locker: 3 });
});

test.each([1, 2, 3])("a parcel of size %d is collected once", async (size) => {
  const { id } = await store(client, size);
  expect(id).toBe(1);
  expect(await collect(client, id)).toBe(true);
  expect(await collect(client, id)).toBe(false);
});
