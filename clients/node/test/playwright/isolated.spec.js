const pg = require("pg");
const { expect, test: base } = require("../../src/playwright.js");

// A pool whose sessions outlive a test, like those of an app.
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
    // The reset has closed the pool's sessions, but the pool may notice this only when it uses a session.
    const create = () => pool.query("CREATE TABLE only_mine ()");
    await create().catch(create);
  });
}
