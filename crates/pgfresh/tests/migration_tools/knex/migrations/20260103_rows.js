export const up = (knex) =>
  knex
    .raw("INSERT INTO customers (name) SELECT 'Customer ' || number FROM generate_series(1, 100) AS number")
    .then(() =>
      knex.raw(
        "INSERT INTO orders (customer_id, total)" +
          " SELECT 1 + number % 100, number FROM generate_series(1, 1000) AS number",
      ),
    );

export const down = () => {};
