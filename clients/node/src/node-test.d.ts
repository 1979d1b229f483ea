import type { TestContext } from "node:test";
import type { Database, DatabaseOptions } from "./index.js";

/**
 * Leases a database for this test, and releases it afterwards. The test fails if it exceeds its budget or a fault
 * never fires.
 */
export function freshDatabase(t: TestContext, options?: DatabaseOptions): Promise<Database>;
