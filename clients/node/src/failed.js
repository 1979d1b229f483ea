"use strict";

// By this name the environment leaves word for the hooks of jest, whose modules are not the same as its own.
module.exports = { FAILED: Symbol.for("pgfresh: the test has failed") };
