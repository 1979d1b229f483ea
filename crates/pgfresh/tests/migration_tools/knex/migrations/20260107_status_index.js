export const config = { transaction: false };

export const up = (knex) =>
  knex.raw("CREATE INDEX CONCURRENTLY orders_status ON orders (status)");

export const down = () => {};
