// Checked by tsc, never run: what the declarations promise to users of CommonJS.

import pgfresh = require("pgfresh");
import { freshDatabase } from "pgfresh/node-test";
import { useFreshDatabase } from "pgfresh/jest";

const database = useFreshDatabase({ template: "shop" });

test("a test", async () => {
  const url: string = database.url;
  await database.reset({ closeSessions: true });
  const { count } = await database.statements(() => {});
  // @ts-expect-error: it is released for us
  await database.release();
});

const another: Promise<pgfresh.Database> = pgfresh.freshDatabase();
