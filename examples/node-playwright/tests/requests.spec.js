// Tests the app and its database without a browser.

import pg from "pg";
import { expect, test } from "./app.js";

for (const text of ["one", "two", "three"]) {
  test(`entry "${text}" has number 2`, async ({ request, freshWorkerUrl }) => {
    await request.post("/", { form: { name: "Grace", text } });
    const client = new pg.Client(freshWorkerUrl);
    await client.connect();
    const { rows } = await client.query("SELECT id FROM entry WHERE text = $1", [text]);
    await client.end();
    expect(rows).toEqual([{ id: 2 }]);
  });
}

test("an empty entry is refused", async ({ request }) => {
  const response = await request.post("/", { form: { name: "Grace", text: "" } });
  expect(response.status()).toBe(500);
});
