// The pgfresh binary of this version. It comes in a package of its own for each platform, of which npm installs the fitting one.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

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

// The first one on PATH that is not `bin/pgfresh.js`, or undefined. npm and npx put that one first, of this package and of others.
function onPath() {
  const places = (process.env.PATH ?? "").split(path.delimiter).map((folder) => path.join(folder, "pgfresh"));
  return places.find((place) => {
    try {
      fs.accessSync(place, fs.constants.X_OK);
      return fs.statSync(place).isFile() && path.basename(fs.realpathSync(place)) !== "pgfresh.js";
    } catch {
      return false;
    }
  });
}

module.exports = { HINT, PLATFORM, carried, onPath };
