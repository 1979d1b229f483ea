export const up = (knex) =>
  knex.schema.createTable("orders", (table) => {
    table.increments("id");
    table.integer("customer_id").notNullable();
    table.integer("total").notNullable();
    table.string("note", 20);
  });

export const down = () => {};
