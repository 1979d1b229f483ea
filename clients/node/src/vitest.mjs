// For vitest: `test` with the fixtures `freshDatabase` and `freshUrl`.

import { test as base } from "vitest";
import { freshDatabase as lease, tell } from "./index.js";

export const test = base.extend({
  freshWish: [{}, { injected: true }],

  freshDatabase: async ({ freshWish, task }, use) => {
    const database = await lease(freshWish);
    await use(database);
    tell(await database.release({ failed: task.result?.state === "fail", test: nameOf(task) }));
  },

  freshUrl: async ({ freshDatabase }, use) => use(freshDatabase.url),
});

// As vitest shows it: "file > suite > test".
function nameOf(task) {
  const around = task.suite ?? task.file;
  return around && around !== task ? `${nameOf(around)} > ${task.name}` : task.name;
}

export const it = test;
