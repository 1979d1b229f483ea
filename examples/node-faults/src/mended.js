// A shop that keeps its promises while the database misbehaves.

import { randomUUID } from "node:crypto";
import { newPool, retry } from "./transactions.js";

export class Shop {
  constructor(url) {
    this.pool = newPool(url);
    this.reports = newPool(url, { max: 1 });
  }

  async close() {
    await Promise.all([this.pool.end(), this.reports.end()]);
  }

  // Stores a payment.
  async pay(customer, cents) {
    const payment = randomUUID();
    await retry(this.pool, (client) =>
      // The first attempt may have been committed although its connection was lost.
      client.query("INSERT INTO payments VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", [payment, customer, cents]),
    );
    return `${customer}: thank you`;
  }

  // Stores an order, and its message to the warehouse.
  async place(customer, item) {
    await retry(this.pool, async (client) => {
      const placed = await client.query("INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING", [customer, item]);
      if (placed.rowCount) await client.query("INSERT INTO outbox VALUES ($1)", [`pack ${customer}`]);
    });
    return `${customer}: we have your order`;
  }

  // Marks an order as shipped.
  async ship(customer) {
    await retry(this.pool, (client) => client.query("UPDATE orders SET state = 'shipped' WHERE customer = $1", [customer]));
    return `${customer}: on its way`;
  }

  // Changes a price.
  async setPrice(item, cents) {
    await retry(this.pool, (client) => client.query("UPDATE prices SET cents = $2 WHERE item = $1", [item, cents]));
    return cents;
  }

  // Looks up a price.
  async price(item) {
    return retry(this.reports, async (client) => {
      const { rows } = await client.query("SELECT cents FROM prices WHERE item = $1", [item]);
      return rows[0].cents;
    });
  }
}
