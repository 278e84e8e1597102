// A client on Node: it reads one request a line and answers with one line, both JSON. Times are taken here, beside the calls, so
// that no pipe is measured. Moments are nanoseconds, as text, because a number of JavaScript does not hold them.
"use strict";

const readline = require("node:readline");

const AT_ONCE = 2; // bulk calls

const timed = async (work) => {
  const began = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - began) / 1e9;
};

// How long `add` takes for all numbers, chunk by chunk.
const inChunks = ({ first, count, chunk }, add) =>
  timed(async () => {
    const end = first + count;
    let next = first;
    const some = async () => {
      while (next < end) {
        const at = next;
        next += chunk;
        await add(Array.from({ length: Math.min(chunk, end - at) }, (_, index) => at + index));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, some));
  });

// The moments before each call of `add`.
const paced = async ({ first, gaps }, add) => {
  const called = [];
  for (const [index, gap] of gaps.entries()) {
    await new Promise((done) => setTimeout(done, gap * 1e3));
    called.push(String(process.hrtime.bigint()));
    await add(first + index);
  }
  return called;
};

async function produce(offered) {
  console.log(JSON.stringify(null));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { operation, ...how } = JSON.parse(line);
    console.log(JSON.stringify(await offered[operation](how)));
  }
  process.exit(0);
}

module.exports = { AT_ONCE, inChunks, paced, produce, timed };
