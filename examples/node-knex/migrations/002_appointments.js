export async function up(knex) {
  await knex.schema.createTable("rooms", (table) => {
    table.increments();
    table.text("name").notNullable().unique();
  });
  await knex("rooms").insert([{ name: "red" }, { name: "green" }, { name: "blue" }]);
  await knex.schema.createTable("appointments", (table) => {
    table.increments();
    table.integer("doctor").notNullable().references("doctors.id");
    table.integer("patient").notNullable().references("patients.id");
    table.integer("room").notNullable().references("rooms.id");
    table.specificType("slot", "tstzrange").notNullable();
    table.timestamp("cancelled");
    table.check("NOT isempty(slot)", [], "a_slot_has_a_length");
    table.index(["doctor", "slot"]);
  });
}

export async function down(knex) {
  await knex.schema.dropTable("appointments").dropTable("rooms");
}
