export const up = (knex) =>
  knex.schema.alterTable("orders", (table) => table.foreign("customer_id").references("customers.id"));

export const down = () => {};
