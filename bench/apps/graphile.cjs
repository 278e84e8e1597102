// graphile-worker's program:  node graphile.cjs migrate | run CONCURRENT_JOBS LOCAL_QUEUE_SIZE | produce
//
// As a producer it answers requests: see producing.cjs.
"use strict";

const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { handlers } = require("./handlers.cjs");
const { AT_ONCE, inChunks, paced, produce, timed } = require("./producing.cjs");

const [mode, concurrentJobs, localQueueSize] = process.argv.slice(2);

const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  worker: {
    connectionString: process.env.BENCH_URL,
    concurrentJobs: Number(concurrentJobs),
    maxPoolSize: Number(concurrentJobs) + 1,
    localQueue: { size: Number(localQueueSize) },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    pollInterval: 100,
    logger,
  },
};

async function operations() {
  const utils = await makeWorkerUtils({ connectionString: process.env.BENCH_URL, maxPoolSize: AT_ONCE, logger });
  // Whole milliseconds are all that a Date has; up, because down would be early.
  const until = (due_ns) => new Date(Math.ceil(Number(BigInt(due_ns) / 1000n) / 1e3));
  const add = (number) => utils.addJob("stamp", { number });

  return {
    many: ({ task, due_ns, keyed, ...what }) =>
      inChunks(what, (numbers) =>
        utils.addJobs(
          numbers.map((number) => ({
            identifier: task,
            payload: { number },
            ...(due_ns && { runAt: until(due_ns) }),
            ...(keyed && { jobKey: `key-${number}` }),
          })),
        ),
      ),
    single: ({ first, count }) =>
      timed(async () => {
        for (let number = first; number < first + count; number++) await add(number);
      }),
    paced: (what) => paced(what, add),
    schedule: ({ number, due_ns }) =>
      utils.addJob("stamp_wall", { number }, { runAt: until(due_ns) }).then(() => null),
    other: ({ number }) => utils.addJob("other", { number }).then(() => null),
    unfinished: () =>
      utils
        .withPgClient((client) =>
          client.query("SELECT FROM graphile_worker._private_jobs WHERE run_at <= now() LIMIT 1"),
        )
        .then((found) => found.rowCount),
    close: () => utils.release().then(() => null),
  };
}

async function main() {
  if (mode === "migrate") {
    await runMigrations({ connectionString: process.env.BENCH_URL, logger });
  } else if (mode === "produce") {
    await produce(await operations());
  } else {
    const runner = await run({ preset, taskList: handlers() });
    await runner.promise;
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
