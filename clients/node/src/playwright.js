// Helper for Playwright: `test` with a database for each worker, which begins each test in the state of its template.

"use strict";

const { expect, test: base } = require("@playwright/test");
const { beginTest, endLease, freshDatabaseFor, reportKept } = require("./index.js");

// Last test of each database: its name, and its result.
const last = new WeakMap();

const test = base.extend({
  freshOptions: [{}, { option: true, scope: "worker" }],

  freshWorkerDatabase: [
    async ({ freshOptions }, use) => {
      const database = await freshDatabaseFor(undefined, freshOptions);
      await use(database);
      // Playwright ends a worker after a failed test.
      const { url, unfired } = await endLease(database, last.get(database));
      reportKept(url);
      if (unfired && last.get(database)?.passed) throw new Error(unfired);
    },
    { scope: "worker" },
  ],

  freshWorkerUrl: [async ({ freshWorkerDatabase }, use) => use(freshWorkerDatabase.url), { scope: "worker" }],

  // Playwright begins an automatic fixture before all others of a test and its `beforeEach`, and ends it after them.
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
