import type { PlaywrightTestArgs, PlaywrightTestOptions, PlaywrightWorkerArgs, PlaywrightWorkerOptions, TestType } from "@playwright/test";
import type { Database, DatabaseOptions } from "./index.js";

/** Fixtures of a worker, for fixtures that start an app, and for tests. */
export interface FreshWorkerFixtures {
  /** Database of this worker. Before each test, it is reset and its sessions are closed. */
  freshWorkerDatabase: Database;
  /** URL of `freshWorkerDatabase`. */
  freshWorkerUrl: string;
  /** Options of `freshWorkerDatabase`. Set them with `test.use({ freshOptions: … })` in a file, or with `use` in Playwright's configuration. */
  freshOptions: DatabaseOptions;
}

/** `test` of Playwright with a fresh database for each worker. */
export const test: TestType<PlaywrightTestArgs & PlaywrightTestOptions, PlaywrightWorkerArgs & PlaywrightWorkerOptions & FreshWorkerFixtures>;
export { expect } from "@playwright/test";
