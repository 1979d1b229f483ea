import assert from "node:assert/strict";
import { test } from "node:test";

import { addDoctor, addPatient, book, cancel, day, wait } from "../src/clinic.js";
import { open } from "../testing/database.js";

const NINE = "2030-05-17T09:00Z";
const QUARTER_PAST = "2030-05-17T09:15Z";
const TEN = "2030-05-17T10:00Z";

function patient(db, name) {
  return addPatient(db, { name, born: "1990-01-01", email: `${name}@example.com` });
}

async function people(db) {
  const doctors = [await addDoctor(db, "Dr. Ames", "eyes"), await addDoctor(db, "Dr. Bell", "teeth")];
  return { doctors, patients: [await patient(db, "ann"), await patient(db, "bob")] };
}

test("a day has its appointments in order", async (t) => {
  const db = await open(t);
  const { doctors: [ames], patients: [ann, bob] } = await people(db);
  await book(db, ames, bob, TEN);
  await book(db, ames, ann, NINE);
  const planned = await day(db, ames, "2030-05-17");
  assert.deepEqual(planned.map(({ patient, room }) => [patient, room]), [["ann", "red"], ["bob", "red"]]);
  assert.deepEqual(await day(db, ames, "2030-05-18"), []);
});

test("nobody is in two places", async (t) => {
  const db = await open(t);
  const { doctors: [ames, bell], patients: [ann, bob] } = await people(db);
  await book(db, ames, ann, NINE);
  await assert.rejects(book(db, ames, bob, QUARTER_PAST), /Dr. Ames is busy/);
  await assert.rejects(book(db, bell, ann, QUARTER_PAST), /ann is elsewhere/);
  assert.equal((await book(db, bell, bob, QUARTER_PAST)).room, 2);
});

test("there are three rooms, which a migration has made", async (t) => {
  const db = await open(t);
  for (const number of [1, 2, 3]) {
    await book(db, await addDoctor(db, `Dr. ${number}`, "ears"), await patient(db, `p${number}`), NINE);
  }
  const { doctors: [ames], patients: [ann] } = await people(db);
  await assert.rejects(book(db, ames, ann, NINE), /all rooms are taken/);
  await book(db, ames, ann, TEN);
});

test("those who book at once get one slot only", async (t) => {
  const db = await open(t);
  const { doctors: [ames] } = await people(db);
  const crowd = await Promise.all(Array.from({ length: 6 }, (_, number) => patient(db, `p${number}`)));
  const booked = await Promise.allSettled(crowd.map((patient) => book(db, ames, patient, NINE)));
  assert.equal(booked.filter(({ status }) => status === "fulfilled").length, 1);
  assert.equal((await day(db, ames, "2030-05-17")).length, 1);
});

test("what is cancelled goes to who waits longest", async (t) => {
  const db = await open(t);
  const { doctors: [ames, bell], patients: [ann, bob] } = await people(db);
  const appointment = await book(db, ames, ann, NINE);
  await wait(db, ann, bell.speciality);
  await wait(db, bob, ames.speciality);
  assert.equal((await cancel(db, appointment)).name, "bob");
  await assert.rejects(cancel(db, appointment), /cancelled already/);
  await book(db, ames, bob, NINE);
  assert.deepEqual(await db("waiting").pluck("speciality"), ["teeth"]);
});

test("an empty slot is refused by the database", async (t) => {
  const db = await open(t);
  const { doctors: [ames], patients: [ann] } = await people(db);
  await assert.rejects(book(db, ames, ann, NINE, 0), { constraint: "a_slot_has_a_length" });
});
