// The database misbehaves while a patient joins the waiting list, but the patient doesn't notice.

import assert from "node:assert/strict";
import { test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";
import { addPatient, wait } from "../src/clinic.js";
import { connect } from "../testing/database.js";

const ann = { name: "Ann", born: "1990-01-01", email: "ann@example.com" };

for (const [what, ...fault] of [
  ["serialization failures", "40001", { at: "commit", times: 2 }],
  ["a lost connection", "connection lost", { statement: 'insert into "waiting"' }],
  ["a lost commit", "connection lost", { at: "after commit" }],
]) {
  test(`who waits survives ${what}`, async (t) => {
    const database = await freshDatabase(t);
    const db = connect(t, database);
    const patient = await addPatient(db, ann);
    await database.fault(...fault);
    await wait(db, patient, "eyes");
    assert.deepEqual(await db("waiting").pluck("speciality"), ["eyes"]);
  });
}

test("three deadlocks are too many", async (t) => {
  const database = await freshDatabase(t);
  const db = connect(t, database);
  const patient = await addPatient(db, ann);
  await database.fault("40P01", { statement: 'insert into "waiting"', times: 10 });
  await assert.rejects(wait(db, patient, "eyes"), { code: "40P01" });
  assert.equal((await database.faults())[0].fired, 3);
});
