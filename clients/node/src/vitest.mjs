// For vitest: `test` with the fixtures `freshDatabase` and `freshUrl`.

import { inject, test as base } from "vitest";
import { endTest, freshDatabaseFor } from "./index.js";
import { take } from "./server.js";

export const test = base.extend({
  freshWish: [{}, { injected: true }],

  freshDatabase: async ({ freshWish, task, onTestFinished }, use) => {
    const test = nameOf(task);
    // By the global setup, if there is one.
    take(inject("pgfresh"));
    const database = await freshDatabaseFor(test, freshWish);
    // These run last, and the first that was added is the last of them: those of the test can close its connections.
    onTestFinished(async () => {
      const state = task.result?.state;
      await endTest(database, { failed: state === "fail", skipped: state === "skip", test });
    });
    await use(database);
  },

  freshUrl: async ({ freshDatabase }, use) => use(freshDatabase.url),
});

// As vitest shows it: "file > suite > test".
function nameOf(task) {
  const around = task.suite ?? task.file;
  return around && around !== task ? `${nameOf(around)} > ${task.name}` : task.name;
}

export const it = test;
