import assert from "node:assert/strict";
import { test } from "node:test";

import { addPatient, wait } from "../src/clinic.js";
import { open } from "../testing/database.js";

const ann = { name: "Ann", born: "1990-01-01", email: "ann@example.com" };

for (const time of ["once", "and once more, in another database"]) {
  test(`the first patient is number 1, ${time}`, async (t) => {
    const db = await open(t);
    assert.equal((await addPatient(db, ann)).id, 1);
  });
}

test("an address is one patient's, however it is written", async (t) => {
  const db = await open(t);
  await addPatient(db, ann);
  await assert.rejects(addPatient(db, { ...ann, email: "ANN@example.com" }), /known already/);
});

test("who waits twice waits once", async (t) => {
  const db = await open(t);
  const patient = await addPatient(db, ann);
  await wait(db, patient, "eyes");
  await wait(db, patient, "eyes");
  assert.equal((await db("waiting")).length, 1);
});

test("the schema goes back and forth", async (t) => {
  const db = await open(t);
  assert.deepEqual((await db.migrate.rollback(undefined, true))[1].length, 3);
  assert.equal(await db.schema.hasTable("patients"), false);
  await db.migrate.latest();
  await addPatient(db, ann);
});
