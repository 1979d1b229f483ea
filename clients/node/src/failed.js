"use strict";

// What jest's environment and `pgfresh/jest` tell each other by. Their modules are not the same, these symbols are.
module.exports = {
  // In the global object, set by the environment.
  FAILED: Symbol.for("pgfresh: the test has failed"),
  // In a hook that runs after all others of its file or `describe`.
  LAST: Symbol.for("pgfresh: the hook runs last"),
};
