// Helper for vitest: `test` with the fixtures `freshDatabase` and `freshUrl`.

import { inject, test as base } from "vitest";
import { endTest, freshDatabaseFor } from "./index.js";
import { useServer } from "./server.js";

export const test = base.extend({
  freshOptions: [{}, { injected: true }],

  freshDatabase: async ({ freshOptions, task, onTestFinished }, use) => {
    const test = nameOf(task);
    // `inject` returns undefined without the global setup.
    useServer(inject("pgfresh"));
    const database = await freshDatabaseFor(test, freshOptions);
    // vitest runs these hooks last, in reverse order, so the test's own hooks close its connections before this hook
    // runs.
    onTestFinished(async () => {
      const state = task.result?.state;
      await endTest(database, { failed: state === "fail", skipped: state === "skip", test });
    });
    await use(database);
  },

  freshUrl: async ({ freshDatabase }, use) => use(freshDatabase.url),
});

// Returns the name of a test in vitest's format: "file > suite > test".
function nameOf(task) {
  const parent = task.suite ?? task.file;
  return parent && parent !== task ? `${nameOf(parent)} > ${task.name}` : task.name;
}

export const it = test;
