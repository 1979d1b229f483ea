"use strict";

// Symbols that jest's environment shares with `pgfresh/jest`. jest loads this module twice, but `Symbol.for` returns
// the same symbols.
module.exports = {
  // Key in the global object: whether the running test has failed. The environment sets the value.
  FAILED: Symbol.for("pgfresh: the test has failed"),
  // Key in the global object: a function that ends the server of the test file.
  END: Symbol.for("pgfresh: ends the server"),
  // Property that marks a hook to run after all other hooks in its file or `describe`.
  LAST: Symbol.for("pgfresh: the hook runs last"),
};
