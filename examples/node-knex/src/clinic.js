// Manages a clinic's appointments. Each function runs one transaction on the database that the caller passes.

import { retry } from "./retry.js";

export class Refused extends Error {}

export async function addDoctor(db, name, speciality) {
  const [doctor] = await db("doctors").insert({ name, speciality }).returning("*");
  return doctor;
}

export async function addPatient(db, { name, born, email }) {
  const [patient] = await db("patients")
    .insert({ name, born, email })
    .onConflict(db.raw("(lower(email))"))
    .ignore()
    .returning("*");
  if (!patient) throw new Refused(`${email} is known already`);
  return patient;
}

// Books the doctor and a room that is free at that time. Bookings wait for each other, so that they can't get the
// same room.
export function book(db, doctor, patient, begin, minutes = 30) {
  return db.transaction(async (tx) => {
    await tx.raw("LOCK TABLE appointments IN SHARE ROW EXCLUSIVE MODE");
    const slot = tx.raw("tstzrange(?::timestamptz, ?::timestamptz + make_interval(mins => ?))", [begin, begin, minutes]);
    const taken = () => tx("appointments").whereNull("cancelled").whereRaw("slot && ?", [slot]);
    if (await taken().where({ doctor: doctor.id }).first()) throw new Refused(`${doctor.name} is busy`);
    if (await taken().where({ patient: patient.id }).first()) throw new Refused(`${patient.name} is elsewhere`);
    const room = await tx("rooms").whereNotIn("id", taken().select("room")).orderBy("id").first();
    if (!room) throw new Refused("all rooms are taken");
    const [appointment] = await tx("appointments")
      .insert({ doctor: doctor.id, patient: patient.id, room: room.id, slot })
      .returning("*");
    await tx("waiting").where({ patient: patient.id, speciality: doctor.speciality }).delete();
    return appointment;
  });
}

// Cancels an appointment. Returns the patient who has waited longest for an appointment with that speciality, if any.
export function cancel(db, appointment) {
  return db.transaction(async (tx) => {
    const cancelled = await tx("appointments")
      .where({ id: appointment.id })
      .whereNull("cancelled")
      .update({ cancelled: tx.fn.now() });
    if (!cancelled) throw new Refused("it is cancelled already");
    return tx("waiting")
      .join("patients", "patients.id", "waiting.patient")
      .whereIn("speciality", tx("doctors").select("speciality").where({ id: appointment.doctor }))
      .orderBy("waiting.id")
      .first("patients.*");
  });
}

// A patient who is already on the list keeps the position, so a second attempt doesn't change anything.
export function wait(db, patient, speciality) {
  const row = { patient: patient.id, speciality };
  return retry(db, (tx) => tx("waiting").insert(row).onConflict(["patient", "speciality"]).ignore());
}

// Returns a doctor's appointments on a day, in order.
export function day(db, doctor, date) {
  return db("appointments")
    .join("patients", "patients.id", "appointments.patient")
    .join("rooms", "rooms.id", "appointments.room")
    .where({ doctor: doctor.id })
    .whereNull("cancelled")
    .whereRaw("slot && tstzrange(?::date, ?::date + 1)", [date, date])
    .orderByRaw("lower(slot)")
    .select(db.raw("lower(slot) AS begin"), { patient: "patients.name", room: "rooms.name" });
}
