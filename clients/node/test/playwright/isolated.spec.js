const pg = require("pg");
const { expect, test: base } = require("../../src/playwright.js");

// Like the sessions of an app that outlives a test.
const test = base.extend({
  pool: [
    async ({ freshWorkerUrl }, use) => {
      const pool = new pg.Pool({ connectionString: freshWorkerUrl });
      pool.on("error", () => {});
      await use(pool);
      await pool.end();
    },
    { scope: "worker" },
  ],
});

test.describe.configure({ mode: "parallel" });

const names = new Set();

test.beforeAll(({ freshWorkerDatabase }) => {
  names.add(freshWorkerDatabase.name);
});

for (const number of [1, 2, 3, 4, 5, 6]) {
  test(`test ${number} is alone`, async ({ pool, freshWorkerDatabase, freshWorkerUrl }) => {
    expect(freshWorkerUrl).toBe(freshWorkerDatabase.url);
    names.add(freshWorkerDatabase.name);
    expect(names.size).toBe(1);
    // The reset has ended the pool's sessions, which the pool may notice only when it uses one.
    const create = () => pool.query("CREATE TABLE only_mine ()");
    await create().catch(create);
  });
}
