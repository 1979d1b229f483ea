// Reads the certificates that the client trusts for a server on another machine.

"use strict";

const { readFileSync } = require("node:fs");

class Trust {
  #parameters = "sslmode=verify-full";

  // Reads the certificates in `file`. Without `file`, or if it is "system", the client trusts the certificates that
  // Node trusts. Throws file system errors.
  constructor(file = "system") {
    if (file === "system" || file === "") return;
    this.roots = readFileSync(file);
    this.#parameters += `&sslrootcert=${encodeURIComponent(file)}`;
  }

  // Adds the parameters that make drivers verify the server to the URLs in a response.
  addTo(answer) {
    for (const key of ["url", "jdbc_url", "replica_url"]) {
      if (answer[key]) answer[key] += (answer[key].includes("?") ? "&" : "?") + this.#parameters;
    }
    return answer;
  }
}

module.exports = { Trust };
