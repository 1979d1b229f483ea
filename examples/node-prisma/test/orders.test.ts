import { test } from "./prisma";

// Both run at the same time, and each sees the first order of its own database.
test.concurrent.for(["Ada", "Ida"])("the first order, of %s, is number 1", async (customer, { prisma, expect }) => {
  const order = await prisma.order.create({ data: { customer, cents: 500 } });
  expect(order.id).toBe(1);
});

test("a shop begins without orders", async ({ prisma, expect }) => {
  expect(await prisma.order.count()).toBe(0);
});
