const { useFreshDatabase } = require("../../src/jest.js");
const { connect, end } = require("../ending.js");

const database = useFreshDatabase();
let client;

beforeEach(async () => {
  client = await connect(database.url);
});

afterEach(() => end(client));

test("ends its connection in a hook", () => {});

describe("in a group", () => {
  const another = useFreshDatabase();
  let second;

  beforeEach(async () => {
    second = await connect(another.url);
  });

  afterEach(() => end(second));

  test("ends its connection in a hook, too", () => {});
});
