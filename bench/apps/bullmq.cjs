// BullMQ's program:  node bullmq.cjs run CONCURRENCY QUEUE... | produce
//
// As a producer it answers requests: see producing.cjs.
"use strict";

const { Queue, Worker } = require("bullmq");
const { handlers } = require("./handlers.cjs");
const { inChunks, paced, produce, timed } = require("./producing.cjs");

const [mode, ...rest] = process.argv.slice(2);
const address = new URL(process.env.BENCH_URL);
const connection = {
  host: address.hostname,
  port: Number(address.port),
  username: address.username || undefined,
  password: address.password || undefined,
  maxRetriesPerRequest: null,
};

function work(concurrency, queues) {
  const tasks = handlers();
  for (const queue of queues) {
    const worker = new Worker(queue, (job) => tasks[job.name](job.data), { connection, concurrency: Number(concurrency) });
    worker.on("error", (error) => console.error(error.message));
    process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
  }
}

function operations() {
  const defaultJobOptions = { removeOnComplete: true };
  const queue = new Queue("default", { connection, defaultJobOptions });
  const other = new Queue("other", { connection, defaultJobOptions });
  // Whole milliseconds are all it has; up, because down would be early.
  const until = (due_ns) => {
    const timestamp = Date.now();
    return { timestamp, delay: Math.ceil(Number(BigInt(due_ns) / 1000n) / 1e3) - timestamp };
  };

  return {
    many: ({ task, due_ns, keyed, ...what }) =>
      inChunks(what, (numbers) =>
        queue.addBulk(
          numbers.map((number) => ({
            name: task,
            data: { number },
            opts: { ...(due_ns && until(due_ns)), ...(keyed && { jobId: `key-${number}` }) },
          })),
        ),
      ),
    single: ({ first, count }) =>
      timed(async () => {
        for (let number = first; number < first + count; number++) await queue.add("stamp", { number });
      }),
    paced: (what) => paced(what, (number) => queue.add("stamp", { number })),
    schedule: ({ number, due_ns }) => queue.add("stamp_wall", { number }, until(due_ns)).then(() => null),
    other: ({ number }) => other.add("other", { number }).then(() => null),
    unfinished: async () => {
      const counts = await Promise.all([queue, other].map((one) => one.getJobCountByTypes("waiting", "active")));
      return counts[0] + counts[1];
    },
    close: () => Promise.all([queue.close(), other.close()]).then(() => null),
  };
}

if (mode === "run") {
  const [concurrency, ...queues] = rest;
  work(concurrency, queues);
} else {
  produce(operations()).catch((error) => {
    console.error(error.message);
    process.exit(1);
  });
}
