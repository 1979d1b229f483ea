// For vitest: `test` with the fixtures `freshDatabase` and `freshUrl`.

import { test as base } from "vitest";
import { endTest, freshDatabaseFor } from "./index.js";

export const test = base.extend({
  freshWish: [{}, { injected: true }],

  freshDatabase: async ({ freshWish, task }, use) => {
    const test = nameOf(task);
    const database = await freshDatabaseFor(test, freshWish);
    await use(database);
    const state = task.result?.state;
    await endTest(database, { failed: state === "fail", skipped: state === "skip", test });
  },

  freshUrl: async ({ freshDatabase }, use) => use(freshDatabase.url),
});

// As vitest shows it: "file > suite > test".
function nameOf(task) {
  const around = task.suite ?? task.file;
  return around && around !== task ? `${nameOf(around)} > ${task.name}` : task.name;
}

export const it = test;
