export const up = (knex) =>
  knex.schema.alterTable("orders", (table) => table.text("status").notNullable().defaultTo("new"));

export const down = () => {};
