export const up = (knex) =>
  knex.schema.alterTable("orders", (table) => table.index("customer_id", "orders_customer_id"));

export const down = () => {};
