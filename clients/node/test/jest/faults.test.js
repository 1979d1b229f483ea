const { useFreshDatabase } = require("../../src/jest.js");
const { fires, never, neverBySql } = require("../faulty.js");

const database = useFreshDatabase();

test("fires", () => fires(database));

test("never fires", () => never(database));

test("never fires by SQL", () => neverBySql(database));

test("fails anyhow", async () => {
  await never(database);
  throw new Error("by itself");
});

test("before a reset", async () => {
  await database.fault("57P03", { at: "connect", duration: 500 });
  await database.reset();
});
