import type { PlaywrightTestArgs, PlaywrightTestOptions, PlaywrightWorkerArgs, PlaywrightWorkerOptions, TestType } from "@playwright/test";
import type { Database, DatabaseOptions } from "./index.js";

/** Worker fixtures, for tests and for fixtures that start an app. */
export interface FreshWorkerFixtures {
  /** Database of this worker. Before each test, pgfresh closes its sessions and resets it. */
  freshWorkerDatabase: Database;
  /** URL of `freshWorkerDatabase`. */
  freshWorkerUrl: string;
  /**
   * Options of `freshWorkerDatabase`. Set the options with `test.use({ freshOptions: … })` in a file, or with `use` in
   * Playwright's configuration.
   */
  freshOptions: DatabaseOptions;
}

/** Playwright's `test` with a fresh database for each worker. */
export const test: TestType<PlaywrightTestArgs & PlaywrightTestOptions, PlaywrightWorkerArgs & PlaywrightWorkerOptions & FreshWorkerFixtures>;
export { expect } from "@playwright/test";
