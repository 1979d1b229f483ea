export async function up(knex) {
  await knex.schema.createTable("doctors", (table) => {
    table.increments();
    table.text("name").notNullable();
    table.text("speciality").notNullable().index();
  });
  await knex.schema.createTable("patients", (table) => {
    table.increments();
    table.text("name").notNullable();
    table.date("born").notNullable();
    table.text("email").notNullable();
  });
  await knex.raw("CREATE UNIQUE INDEX one_patient_for_each_address ON patients (lower(email))");
}

export async function down(knex) {
  await knex.schema.dropTable("patients").dropTable("doctors");
}
