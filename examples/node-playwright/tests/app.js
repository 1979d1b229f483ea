// `test` with an app for each worker, which uses the database of the worker.

import { expect, test as base } from "pgfresh/playwright";
import { start } from "../src/guestbook.js";

export { expect };

export const test = base.extend({
  app: [
    async ({ freshWorkerUrl }, use) => {
      const app = await start(freshWorkerUrl);
      await use(app);
      await app.stop();
    },
    { scope: "worker" },
  ],

  baseURL: async ({ app }, use) => use(app.url),
});
