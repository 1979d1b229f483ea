import { freshDatabase } from "pgfresh/node-test";
import { orders } from "../orders.js";

orders(freshDatabase);
