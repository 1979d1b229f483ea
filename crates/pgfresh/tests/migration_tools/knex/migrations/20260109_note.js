export const up = (knex) =>
  knex("orders")
    .whereNull("note")
    .update({ note: "" })
    .then(() => knex.schema.alterTable("orders", (table) => table.string("note", 40).notNullable().alter()));

export const down = () => {};
