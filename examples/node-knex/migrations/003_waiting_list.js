export async function up(knex) {
  await knex.schema.createTable("waiting", (table) => {
    table.increments();
    table.integer("patient").notNullable().references("patients.id");
    table.text("speciality").notNullable();
    table.timestamp("since").notNullable().defaultTo(knex.fn.now());
    table.unique(["patient", "speciality"], { indexName: "waits_once" });
  });
}

export async function down(knex) {
  await knex.schema.dropTable("waiting");
}
