const { setTimeout } = require("node:timers/promises");
const { servers } = require("../servers.js");
const { useFreshDatabase } = require("../../src/jest.js");

useFreshDatabase();

test("the server of another file ends", async () => {
  while (servers().length > 1) await setTimeout(10);
  expect(servers().length).toBe(1);
});
