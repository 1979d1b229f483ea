// Checks the options of a caller.

"use strict";

const { PgfreshError } = require("./server.js");

// Throws if `value` isn't an object or has members other than `known`. `what` and `kind` name the object and its
// members in the error.
function checkMembers(what, kind, value, known) {
  if (value === null || typeof value !== "object") throw new PgfreshError(`the ${kind}s of a ${what} are not an object`);
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new PgfreshError(`a ${what} has no ${kind} "${unknown}"; it has ${known.join(", ")}`);
}

module.exports = { checkMembers };
