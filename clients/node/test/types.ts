// Checks the declarations for CommonJS. tsc checks the types in this file, but no test runs it.

import pgfresh = require("pgfresh");
import { freshDatabase } from "pgfresh/node-test";
import { useFreshDatabase } from "pgfresh/jest";

const database = useFreshDatabase({ template: "shop" });

test("a test", async () => {
  const url: string = database.url;
  await database.reset({ closeSessions: true });
  const { count } = await database.statements(() => {});
  // @ts-expect-error: the helper releases the database
  await database.release();
});

const another: Promise<pgfresh.Database> = pgfresh.freshDatabase();
