// graphile-worker's program:  node graphile.cjs migrate | run CONCURRENT_JOBS LOCAL_QUEUE_SIZE
"use strict";

const { Logger, run, runMigrations } = require("graphile-worker");
const { handlers } = require("./handlers.cjs");

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

async function main() {
  if (mode === "migrate") {
    await runMigrations({ connectionString: process.env.BENCH_URL, logger });
  } else {
    const runner = await run({ preset, taskList: handlers() });
    await runner.promise;
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
