import type { Database, DatabaseOptions } from "./index.js";

/**
 * Leases a database before each test in the calling file or `describe`, and releases it afterwards. Within a test, the
 * returned object is the database of this test. A test fails if it exceeds its budget or if a fault never fires.
 * Outside a test and its hooks, and in `test.concurrent`, the members of the object throw a `PgfreshError`.
 */
export function useFreshDatabase(options?: DatabaseOptions): Omit<Database, "release">;
