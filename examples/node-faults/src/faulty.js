// The shop with five bugs. Each bug appears only while the database misbehaves.

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
    await retry(this.pool, (client) => {
      // Bug: each attempt uses a new id, so a second attempt duplicates a payment that was committed.
      const payment = randomUUID();
      return client.query("INSERT INTO payments VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", [payment, customer, cents]);
    });
    return `${customer}: thank you`;
  }

  // Stores an order, and its message to the warehouse.
  async place(customer, item) {
    let placed;
    await retry(this.pool, async (client) => {
      placed = await client.query("INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING", [customer, item]);
    });
    // Bug: after a lost commit, the second attempt finds the order and doesn't send the message.
    if (placed.rowCount) {
      await retry(this.pool, (client) => client.query("INSERT INTO outbox VALUES ($1)", [`pack ${customer}`]));
    }
    return `${customer}: we have your order`;
  }

  // Marks an order as shipped.
  async ship(customer) {
    // Bug: the customer learns that the order has shipped although the database didn't store this.
    try {
      await this.pool.query("UPDATE orders SET state = 'shipped' WHERE customer = $1", [customer]);
    } catch (error) {
      console.error(`cannot ship ${customer}`, error);
    }
    return `${customer}: on its way`;
  }

  // Changes a price.
  async setPrice(item, cents) {
    for (let attempt = 1; ; attempt++) {
      const client = await this.pool.connect();
      try {
        await client.query("BEGIN");
        await client.query("UPDATE prices SET cents = $2 WHERE item = $1", [item, cents]);
        await client.query("COMMIT");
        return cents;
      } catch (error) {
        if (attempt === 3) throw error;
      } finally {
        // Bug: without ROLLBACK, the next attempt gets a connection in a failed transaction.
        client.release();
      }
    }
  }

  // Looks up a price.
  async price(item) {
    for (let attempt = 1; ; attempt++) {
      try {
        // Bug: after an error, the client doesn't return to the pool, so the pool waits for it forever.
        const client = await this.reports.connect();
        const { rows } = await client.query("SELECT cents FROM prices WHERE item = $1", [item]);
        client.release();
        return rows[0].cents;
      } catch (error) {
        if (attempt === 3) throw error;
      }
    }
  }
}
