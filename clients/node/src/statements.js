// The statements that the clients of a database have run.

"use strict";

class Statements {
  // What the server has told before and after a block. `wasReset`: the block has reset the database, which is also seen where
  // another way was used, if statements ran less often afterwards.
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
