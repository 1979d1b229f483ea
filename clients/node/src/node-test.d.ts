import type { TestContext } from "node:test";
import type { Database, DatabaseOptions } from "./index.js";

/** Leases a database for this test, and releases it afterwards. A test fails if it exceeds its budget, or if a fault never fires. */
export function freshDatabase(t: TestContext, options?: DatabaseOptions): Promise<Database>;
