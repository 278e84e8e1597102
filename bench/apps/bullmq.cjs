// BullMQ's program:  node bullmq.cjs run CONCURRENCY QUEUE... | produce
//
// As a producer it reads one request a line and answers with one line, both JSON; times are taken here, beside the calls.
// Moments are nanoseconds, as text, because a number of JavaScript does not hold them.
"use strict";

const readline = require("node:readline");
const { Queue, Worker } = require("bullmq");
const { handlers } = require("./handlers.cjs");

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
  const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1e3));
  // Whole milliseconds are all it has; up, because down would be early.
  const until = (due_ns) => {
    const timestamp = Date.now();
    return { timestamp, delay: Math.ceil(Number(BigInt(due_ns) / 1000n) / 1e3) - timestamp };
  };
  const timed = async (work) => {
    const began = process.hrtime.bigint();
    await work();
    return Number(process.hrtime.bigint() - began) / 1e9;
  };

  return {
    many: ({ task, first, count, chunk, due_ns, keyed }) =>
      timed(async () => {
        for (let at = first; at < first + count; at += chunk) {
          const jobs = [];
          for (let number = at; number < Math.min(at + chunk, first + count); number++) {
            const opts = { ...(due_ns && until(due_ns)), ...(keyed && { jobId: `key-${number}` }) };
            jobs.push({ name: task, data: { number }, opts });
          }
          await queue.addBulk(jobs);
        }
      }),
    single: ({ first, count }) =>
      timed(async () => {
        for (let number = first; number < first + count; number++) await queue.add("stamp", { number });
      }),
    paced: async ({ first, gaps }) => {
      const called = [];
      for (const [index, gap] of gaps.entries()) {
        await sleep(gap);
        called.push(String(process.hrtime.bigint()));
        await queue.add("stamp", { number: first + index });
      }
      return called;
    },
    schedule: ({ number, due_ns }) => queue.add("stamp_wall", { number }, until(due_ns)).then(() => null),
    other: ({ number }) => other.add("other", { number }).then(() => null),
    unfinished: async () => {
      const counts = await Promise.all([queue, other].map((one) => one.getJobCountByTypes("waiting", "active")));
      return counts[0] + counts[1];
    },
    close: () => Promise.all([queue.close(), other.close()]).then(() => null),
  };
}

async function produce() {
  const offered = operations();
  console.log(JSON.stringify(null));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { operation, ...how } = JSON.parse(line);
    console.log(JSON.stringify(await offered[operation](how)));
  }
  process.exit(0);
}

if (mode === "run") {
  const [concurrency, ...queues] = rest;
  work(concurrency, queues);
} else {
  produce().catch((error) => {
    console.error(error.message);
    process.exit(1);
  });
}
