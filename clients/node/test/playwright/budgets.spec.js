const { test } = require("../../src/playwright.js");
const { booksOf } = require("../books.js");

test.use({ freshOptions: { budget: { statements: 7, nPlusOne: 6 } } });

test("at its budget", ({ freshWorkerDatabase }) => booksOf(freshWorkerDatabase, 6, "CREATE TABLE t ()"));

test("at its budget again", ({ freshWorkerDatabase }) => booksOf(freshWorkerDatabase, 6, "CREATE TABLE t ()"));

test("beyond", ({ freshWorkerDatabase }) => booksOf(freshWorkerDatabase, 7, "CREATE TABLE t ()"));

test("before a reset", async ({ freshWorkerDatabase }) => {
  await booksOf(freshWorkerDatabase, 2, "BEGIN; COMMIT");
  await booksOf(freshWorkerDatabase, 6, "SELECT 1");
  await freshWorkerDatabase.reset();
  await booksOf(freshWorkerDatabase, 1);
});

test("counts for itself", ({ freshWorkerDatabase }) => booksOf(freshWorkerDatabase, 1));
