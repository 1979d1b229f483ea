export const up = (knex) => knex.raw("ALTER TABLE orders ALTER COLUMN id TYPE bigint");

export const down = () => {};
