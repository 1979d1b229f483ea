export { freshDatabase } from "./node-test.js";
