export const up = (knex) =>
  knex.schema.createTable("customers", (table) => {
    table.increments("id");
    table.text("name").notNullable();
    table.string("email", 80);
  });

export const down = () => {};
