// Helper for Playwright: `test` with a database for each worker. Each test starts with the database in the state of its
// template.

"use strict";

const { expect, test: base } = require("@playwright/test");
const { beginTest, endLease, freshDatabaseFor, reportKept } = require("./index.js");

// Last test that used each database: the test's name and result.
const last = new WeakMap();

const test = base.extend({
  freshOptions: [{}, { option: true, scope: "worker" }],

  freshWorkerDatabase: [
    async ({ freshOptions }, use) => {
      const database = await freshDatabaseFor(undefined, freshOptions);
      await use(database);
      // Playwright ends a worker after a failed test, so the last test determines whether the lease failed.
      const { url, unfired } = await endLease(database, last.get(database));
      reportKept(url);
      if (unfired && last.get(database)?.passed) throw new Error(unfired);
    },
    { scope: "worker" },
  ],

  freshWorkerUrl: [async ({ freshWorkerDatabase }, use) => use(freshWorkerDatabase.url), { scope: "worker" }],

  // Playwright sets up an automatic fixture before the test's `beforeEach` and all its other fixtures, and tears it
  // down after them.
  freshReset: [
    async ({ freshWorkerDatabase: database }, use, testInfo) => {
      const name = testInfo.titlePath.join(" > ");
      await beginTest(database, name, last.get(database) ?? {});
      await use();
      const passed = testInfo.status === "passed";
      last.set(database, { test: name, passed, failed: testInfo.status !== testInfo.expectedStatus });
      if (!passed) return;
      try {
        await database.checkBudget();
        await database.checkFaults();
      } catch (error) {
        last.set(database, { test: name, failed: true });
        throw error;
      }
    },
    { auto: true },
  ],
});

module.exports = { expect, test };
