import { PrismaPg } from "@prisma/adapter-pg";
import { test as base } from "pgfresh/vitest";
import { PrismaClient } from "../generated/client";

export const test = base.extend<{ prisma: PrismaClient }>({
  prisma: async ({ freshUrl }, use) => {
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: freshUrl }) });
    await use(prisma);
    await prisma.$disconnect();
  },
});
