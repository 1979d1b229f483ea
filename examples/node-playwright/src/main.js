import { start } from "./guestbook.js";

const { url } = await start(process.env.DATABASE_URL, 8000);
console.log(url);
