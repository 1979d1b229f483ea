// Limits how many statements the clinic runs.

import assert from "node:assert/strict";
import { test } from "node:test";

import { freshDatabase } from "pgfresh/node-test";
import { addDoctor, addPatient, book, day } from "../src/clinic.js";
import { connect, open } from "../testing/database.js";

const ann = { name: "Ann", born: "1990-01-01", email: "ann@example.com" };

test("a patient is one statement", async (t) => {
  // Knex itself queries the server's version first.
  const db = await open(t, { budget: { statements: 2, nPlusOne: 0 } });
  await addPatient(db, ann);
});

test("a day is one query, however many come", async (t) => {
  const database = await freshDatabase(t, { record: true });
  const db = connect(t, database);
  const doctor = await addDoctor(db, "Dr. Ames", "eyes");
  const patient = await addPatient(db, ann);
  for (const hour of ["09", "10", "11"]) await book(db, doctor, patient, `2030-05-17T${hour}:00Z`);
  const statements = await database.statements(async () => {
    assert.equal((await day(db, doctor, "2030-05-17")).length, 3);
  });
  assert.equal(statements.count, 1, `${statements}`);
});

// This test is slow on purpose: it runs a query for each row of another query. `pgfresh run --profile` finds it.
test("names one after the other", async (t) => {
  const db = await open(t);
  await db("patients").insert(Array.from({ length: 12 }, (_, number) => ({ ...ann, email: `${number}@example.com` })));
  for (const id of await db("patients").pluck("id")) {
    assert.equal((await db("patients").where({ id }).first("name")).name, "Ann");
  }
});
