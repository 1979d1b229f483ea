const pg = require("pg");
const { useFreshDatabase } = require("../../src/jest.js");
const { report } = require("../watched.js");

const database = useFreshDatabase();

test("the tables of the template", () => report(pg, database.url));
