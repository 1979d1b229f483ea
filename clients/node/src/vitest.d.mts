import type { TestAPI } from "vitest";
import type { Database, DatabaseOptions } from "./index.js";

/** Fixtures that a test can request. */
export interface FreshFixtures {
  /** A fresh database for this test alone. */
  freshDatabase: Database;
  /** URL of `freshDatabase`. */
  freshUrl: string;
  /**
   * Options of `freshDatabase`. Set the options with `test.scoped({ freshOptions: … })`, or for a project with
   * `provide` in vitest's configuration.
   */
  freshOptions: DatabaseOptions;
}

/** vitest's `test` with fixtures for fresh databases. */
export const test: TestAPI<FreshFixtures>;
export const it: typeof test;
