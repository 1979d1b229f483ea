import { describe, expect } from "vitest";
import { test } from "../../src/vitest.mjs";
import { booksOf } from "../books.js";

describe("seven statements", () => {
  test.scoped({ freshOptions: { budget: { statements: 7, nPlusOne: 6, time: "10min" } } });

  test("at its budget", ({ freshDatabase }) => booksOf(freshDatabase, 6, "CREATE TABLE t ()"));

  test("beyond", ({ freshDatabase }) => booksOf(freshDatabase, 7, "CREATE TABLE t ()"));

  test("fails anyhow", async ({ freshDatabase }) => {
    await booksOf(freshDatabase, 17);
    throw new Error("by itself");
  });

  test("is skipped", async ({ freshDatabase, skip }) => {
    await booksOf(freshDatabase, 17);
    skip();
  });

  test("before a reset", async ({ freshDatabase }) => {
    await booksOf(freshDatabase, 2, "BEGIN; COMMIT");
    await booksOf(freshDatabase, 6, "SELECT 1");
    await freshDatabase.reset();
    await booksOf(freshDatabase, 1);
  });
});

describe("no time", () => {
  test.scoped({ freshOptions: { budget: { time: 0 } } });

  test("slow", ({ freshDatabase }) => booksOf(freshDatabase, 1));
});

describe("nothing", () => {
  test.scoped({ freshOptions: { budget: { statements: 0 } } });

  test("does nothing", ({ freshDatabase }) => {});
});

describe("without a budget", () => {
  test("many", async ({ freshDatabase }) => {
    await booksOf(freshDatabase, 40);
    expect(freshDatabase.recorded).toBe("PGFRESH_CONFIG" in process.env);
  });
});

describe("recorded", () => {
  test.scoped({ freshOptions: { record: true } });

  test("counted", async ({ freshDatabase }) => {
    const statements = await freshDatabase.statements(() => booksOf(freshDatabase, 3));
    expect(String(statements)).toBe("3 statements: 3x SELECT ? WHERE ? > ?");
  });
});
