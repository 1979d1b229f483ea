// Checks the declarations for ES modules. tsc checks the types in this file, but no test runs it.

import { test as nodeTest } from "node:test";

import { type Budget, type Database, type FaultStatus, PgfreshError, type Statements, freshDatabase, withFreshDatabase } from "pgfresh";
import { freshDatabase as forTest } from "pgfresh/node-test";
import { expect, test as playwrightTest } from "pgfresh/playwright";
import { test } from "pgfresh/vitest";

const database: Database = await freshDatabase({ template: "shop", isolation: "clone" });
const kept: string | undefined = await database.release({ failed: true });
await database.reset({ closeSessions: true });

const count: number = await withFreshDatabase(async ({ url }) => url.length);
const name: string = await withFreshDatabase({ name: "orders" }, (database) => database.name);

const budget: Budget = { statements: 5, nPlusOne: 0, time: "50ms" };
const statements: Statements = await database.statements(async () => {});
const ran: number = statements.count + statements.mostFrequent[0].rows;
await database.checkBudget();
await database.fault("40001", { at: "commit", times: 2 });
await database.fault("connection lost", { at: "after commit" });
await database.fault({ delay: "2s", statement: "SELECT … FROM orders" });
await database.fault("failover", { duration: 1000, readOnly: "2s" });
const faults: readonly FaultStatus[] = await database.faults();
await database.checkFaults();
// @ts-expect-error: `at` doesn't accept this moment
await database.fault("40001", { at: "never" });
// @ts-expect-error: a budget doesn't have this limit
await freshDatabase({ budget: { rows: 5 } });
// @ts-expect-error: pgfresh doesn't have this isolation
await freshDatabase({ isolation: "none" });
// @ts-expect-error: the name of a database is read-only
database.name = "another";

nodeTest("a test", async (t) => {
  const { jdbcUrl }: Database = await forTest(t, { template: "shop", budget });
});

test("a test", async ({ freshDatabase, freshUrl }) => {
  await freshDatabase.reset();
  const url: string = freshUrl;
});
test.scoped({ freshOptions: { template: "shop", record: true, budget: { time: 50 } } });

const appTest = playwrightTest.extend<{ page: never }, { app: string }>({
  app: [async ({ freshWorkerDatabase, freshWorkerUrl }, use) => use(`${freshWorkerDatabase.name} ${freshWorkerUrl}`), { scope: "worker" }],
});
appTest.use({ freshOptions: { template: "shop" } });
appTest("a test", ({ app, request }) => expect(app).toBe("shop"));

try {
  await database.reset();
} catch (error) {
  if (error instanceof PgfreshError) {
    const parts: (string | undefined)[] = [error.primary, error.code, error.detail, error.hint, error.remedy];
  }
}
