// Counts the statements that the clients of a database run.

"use strict";

class Statements {
  // `before` and `after` are the server's counts before and after a block. `wasReset` tells whether this client reset
  // the database within the block. Lower counts after the block indicate a reset by another client.
  constructor(before, after, wasReset) {
    this.complete = after.complete;
    let earlier = linesOf(before);
    const lines = linesOf(after);
    if (wasReset || [...earlier].some(([text, was]) => was.count > (lines.get(text)?.count ?? 0))) {
      before = { count: 0, seconds: 0 };
      earlier = new Map();
      this.complete = false;
    }
    this.count = after.count - before.count;
    this.seconds = after.seconds - before.seconds;
    this.mostFrequent = [...lines.values()]
      .map((line) => {
        const was = earlier.get(line.statement) ?? { count: 0, seconds: 0, rows: 0 };
        const { statement: text, count, seconds, rows } = line;
        return { text, count: count - was.count, seconds: seconds - was.seconds, rows: rows - was.rows };
      })
      .filter(({ count }) => count)
      .sort((one, other) => other.count - one.count);
  }

  toString() {
    const lines = this.mostFrequent.map(({ text, count }) => `${count}x ${text}`).join(", ");
    return `${this.count} statements: ${lines}`;
  }
}

function linesOf({ statements }) {
  return new Map(statements.map((line) => [line.statement, line]));
}

module.exports = { Statements };
