const { useFreshDatabase } = require("../../src/jest.js");
const { booksOf } = require("../books.js");

describe("seven statements", () => {
  const database = useFreshDatabase({ budget: { statements: 7, nPlusOne: 6, time: "10min" } });

  test("at its budget", () => booksOf(database, 6, "CREATE TABLE t ()"));

  test("beyond", () => booksOf(database, 7, "CREATE TABLE t ()"));

  test("fails anyhow", async () => {
    await booksOf(database, 17);
    throw new Error("by itself");
  });

  test("before a reset", async () => {
    await booksOf(database, 2, "BEGIN; COMMIT");
    await booksOf(database, 6, "SELECT 1");
    await database.reset();
    await booksOf(database, 1);
  });
});

describe("no time", () => {
  const database = useFreshDatabase({ budget: { time: 0 } });

  test("slow", () => booksOf(database, 1));
});

describe("nothing", () => {
  const database = useFreshDatabase({ budget: { statements: 0 } });

  test("does nothing", () => {});
});

describe("without a budget", () => {
  const database = useFreshDatabase();

  test("many", async () => {
    await booksOf(database, 40);
    expect(database.recorded).toBe("PGFRESH_CONFIG" in process.env);
  });
});

describe("recorded", () => {
  const database = useFreshDatabase({ record: true });

  test("counted", async () => {
    const statements = await database.statements(() => booksOf(database, 3));
    expect(String(statements)).toBe("3 statements: 3x SELECT ? WHERE ? > ?");
  });
});
