import pg from "pg";
import { test } from "../../src/vitest.mjs";
import { report } from "../watched.js";

test("the tables of the template", ({ freshUrl }) => report(pg, freshUrl));
