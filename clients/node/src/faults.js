// Converts faults to and from the HTTP API's format.

"use strict";

const { checkMembers } = require("./options.js");

const OPTIONS = ["at", "statement", "nth", "times", "delay", "bandwidth", "duration", "readOnly"];
const CONNECTIONS = { "connection lost": "reset", "connection silent": "silent" };

// Returns the body of a fault request. `what` may be missing. Times that are numbers are in milliseconds.
function faultOf(what, options = {}) {
  if (typeof what === "object") return faultOf(undefined, what);
  checkMembers("fault", "option", options, OPTIONS);
  const { delay, bandwidth, at, statement, nth, times, duration, readOnly } = options;
  const effect = what in CONNECTIONS ? { connection: CONNECTIONS[what] } : { error: what };
  const body = { ...effect, delay: timeOf(delay), bandwidth, at, statement, nth, times };
  return { ...body, duration: timeOf(duration), read_only: timeOf(readOnly) };
}

// Returns a time as text with a unit. A number is in milliseconds.
function timeOf(time) {
  return typeof time === "number" ? `${Math.ceil(time)}ms` : time;
}

function statusOf({ fault: text, times, fired, candidates, statements }) {
  return { text, times, fired, candidates, statements };
}

// Returns a message about the faults in a response that never fired, or "" if all faults fired.
function unfiredMessage({ unfired_faults = [] }) {
  return unfired_faults.map((fault) => `fault did not fire: ${fault}`).join("\n");
}

module.exports = { faultOf, statusOf, timeOf, unfiredMessage };
