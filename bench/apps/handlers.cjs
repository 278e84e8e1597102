// The handlers of programs on Node.
//
// They write into the same file of slots that Python's map (bench/ledger.py, bench/crowd.py): both see one page cache.
// process.hrtime is CLOCK_MONOTONIC, as Python's time.monotonic_ns is.
"use strict";

const fs = require("node:fs");
const { performance } = require("node:perf_hooks");

const SLOT = 8;
const NAP_MS = 10;

function handlers() {
  const file = fs.openSync(process.env.BENCH_LEDGER, "r+");
  const slot = Buffer.alloc(SLOT);
  const write = (number, value) => {
    slot.writeBigInt64LE(value);
    fs.writeSync(file, slot, 0, SLOT, number * SLOT);
  };
  const read = (number) => {
    fs.readSync(file, slot, 0, SLOT, number * SLOT);
    return slot.readBigInt64LE();
  };
  const stamp = async ({ number }) => write(number, process.hrtime.bigint());
  const stamp_wall = async ({ number }) =>
    write(number, BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n);

  const column = Number(process.env.BENCH_COLUMN || 0);
  const process_number = Number(process.env.BENCH_PROCESS || 0);
  let gate_is_open = false;
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const nap = async ({ number }) => {
    write(column + number, read(column + number) + 1n);
    if (!gate_is_open) {
      write(1 + process_number, 1n);
      while (read(0) === 0n) await sleep(5);
      gate_is_open = true;
    }
    await sleep(NAP_MS);
  };
  return { stamp, stamp_wall, other: stamp, nap };
}

module.exports = { handlers };
