// Finds the pgfresh binary. Each platform has a package with the binary of this version, and npm installs the matching
// package.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

const PLATFORM = `@pgfresh/${process.platform}-${process.arch}`;

// Commands that install pgfresh from a checkout, by process.platform. "make install" isn't for macOS, because its
// scripts need a newer bash than macOS has.
const COMMANDS = new Map([
  ["linux", "make install"],
  ["darwin", "cargo install --locked --path crates/pgfresh"],
]);

// Returns the hint for a missing binary. `platform` is a value of process.platform. All clients have the same texts.
function installHint(platform) {
  const command = COMMANDS.get(platform);
  if (command) return `Run "${command}" in a checkout of pgfresh, or set PGFRESH_BIN to where it is.`;
  return `pgfresh runs on Linux and macOS, not on ${platform}. Run the tests in WSL 2, or set PGFRESH_CONTROL to a server on another machine.`;
}

const HINT = installHint(process.platform);

// Returns the path of the binary in the platform's package, or undefined if npm hasn't installed the package.
function bundledBinary() {
  try {
    return require.resolve(`${PLATFORM}/bin/pgfresh`);
  } catch {
    return undefined;
  }
}

// Returns the first pgfresh on PATH, or undefined. Skips each `bin/pgfresh.js`, because npm and npx put it first.
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

module.exports = { HINT, PLATFORM, binaryOnPath, bundledBinary, installHint };
