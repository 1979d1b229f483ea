// The pgfresh binary of this version. It comes in a package of its own for each platform, of which npm installs the fitting one.

"use strict";

const PLATFORM = `@pgfresh/${process.platform}-${process.arch}`;

// What to do where there is none; the other clients say the same.
const HINT = "Install it with the script of its release, sh pgfresh-install.sh, or set PGFRESH_BIN to where it is.";

// Its path, or undefined if the platform's package is not installed.
function carried() {
  try {
    return require.resolve(`${PLATFORM}/bin/pgfresh`);
  } catch {
    return undefined;
  }
}

module.exports = { HINT, PLATFORM, carried };
