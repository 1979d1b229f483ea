export const up = (knex) =>
  knex.schema.alterTable("customers", (table) => table.renameColumn("email", "mail"));

export const down = () => {};
