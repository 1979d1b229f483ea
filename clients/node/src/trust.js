// Certificates that the client trusts for a server on another machine.

"use strict";

const { readFileSync } = require("node:fs");

class Trust {
  #parameters = "sslmode=verify-full";

  // Reads the certificates in `file`. Without a file, or with "system", the client trusts those that Node trusts. Throws the error of
  // the file system.
  constructor(file = "system") {
    if (file === "system" || file === "") return;
    this.roots = readFileSync(file);
    this.#parameters += `&sslrootcert=${encodeURIComponent(file)}`;
  }

  // Makes the URLs of a response tell drivers to verify the server, too.
  addTo(answer) {
    for (const key of ["url", "jdbc_url", "replica_url"]) {
      if (answer[key]) answer[key] += (answer[key].includes("?") ? "&" : "?") + this.#parameters;
    }
    return answer;
  }
}

module.exports = { Trust };
