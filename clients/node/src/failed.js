"use strict";

// Symbols that jest's environment shares with `pgfresh/jest`. jest loads this module twice, but `Symbol.for` returns equal symbols.
module.exports = {
  // Key in the global object: whether the running test has failed. The environment sets it.
  FAILED: Symbol.for("pgfresh: the test has failed"),
  // Property of a hook that runs after all others of its file or `describe`.
  LAST: Symbol.for("pgfresh: the hook runs last"),
};
