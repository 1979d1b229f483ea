// Path of the pgfresh binary. Each platform has a package with the binary of this version, and npm installs the one that fits.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

const PLATFORM = `@pgfresh/${process.platform}-${process.arch}`;

// Hint if there is no binary. The other clients have the same text.
const HINT = 'Run "make install" in a checkout of pgfresh, or set PGFRESH_BIN to where it is.';

// Returns the path in the platform's package, or undefined if npm has not installed the package.
function bundledBinary() {
  try {
    return require.resolve(`${PLATFORM}/bin/pgfresh`);
  } catch {
    return undefined;
  }
}

// Returns the first pgfresh on PATH, or undefined. Skips every `bin/pgfresh.js`, which npm and npx put first.
function binaryOnPath() {
  const paths = (process.env.PATH ?? "").split(path.delimiter).map((folder) => path.join(folder, "pgfresh"));
  return paths.find((file) => {
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return fs.statSync(file).isFile() && path.basename(fs.realpathSync(file)) !== "pgfresh.js";
    } catch {
      return false;
    }
  });
}

module.exports = { HINT, PLATFORM, binaryOnPath, bundledBinary };
