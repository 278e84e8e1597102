"""Every key of a Redis store: name, type and meaning. Scripts build the same names from KEYS[1].

All keys begin with `{namespace}:`. The hash tag keeps them in one slot of a cluster, so that one script can touch them all. The
bare prefix is never used as a key: scripts get it as KEYS[1] for routing. While a slot migrates, the source node redirects
every call, so no script runs on half of the keys.

<id> is the 16 bytes of a job id, <instance> its 16 characters. Times are microseconds since 1970 by the server's clock (µs).

    meta                 hash     version, oldest_code, store (random id), pruned_before (µs)

  Jobs
    job:<bucket>         hash     id -> body: the immutable part of a job, live or ended. See `bucket`
    buckets              zset     bucket -> its number: all buckets that exist
    ids:<bucket>         list     the ids of a bucket in order: single ids, and first id, last id and size of runs (_base.lua)
    runs:<bucket>        hash     first and last id of a run -> its ids, concatenated, ascending
    due:<queue>:<p>      zset     id -> run_at (µs): pending jobs of priority p, in no lane and not blocked, due and future
    queues               set      queues that have or had jobs
    live_state           hash     id -> run_at, token, failures ... (_base.lua) of live jobs that were claimed or changed, or
                                  have parents; absent: run_at is the body's due_at, the rest is empty
    blocked:<on>NUL<queue>:<p>  zset  id -> run_at (µs): pending jobs that are blocked on something other than time or parents
    blocked_since:<on>   zset     id -> since when it has been blocked (µs)
    blocked_on           hash     what jobs are blocked on -> number of jobs
    blocked_counts       hash     queue -> number of its blocked jobs
    held:<instance>      zset     id -> token: jobs claimed by an instance. The fence: an outcome counts only if it is here
    cancels:<instance>   set      ids of its running jobs whose cancellation was requested
    progress             hash     id -> JSON string, of running jobs
    keys                 hash     u (unique jobs) or k (others), task, NUL, key -> id of a live job
    keyset:<field>       set      ids of further live jobs of the same field of `keys`
    ended:<bucket>       hash     id -> how it ended (_transitions.lua)
    history              zset     id -> finished_at (µs): ended jobs except dead letters
    unsucceeded          zset     id -> 0: jobs of history that were cancelled, discarded or have expired, by id
    expiring             zset     id -> expires_at (µs): jobs that expire, also when they have ended meanwhile, until then
    dead                 zset     id -> 0: dead letters, by id
    attempts:<id>        list     JSON of the earlier attempts of a job
    steps:<id>           hash     kind, NUL, name -> JSON of a step, sleep or wait of a job (steps.py)
    signals:<id>         hash     id of a signal -> when it was sent, what has read it, its name and payload (_signals.lua)
    children:<id>        zset     id -> 0: the newest 10,000 jobs that a job enqueued, by id; expires 30 days after the last
    count                hash     task NUL live, succeeded, dead, cancelled or expired -> number of jobs
    paused               hash     queue -> JSON array [at, by, reason]
    parked_claims        zset     instance -> when its empty claim was parked (µs); see _handoff.lua
    parked_requests      hash     instance -> what its last parked claim asks for

  Limits (formats in lua/_lanes.lua). <line> is <queue>, NUL and the line's name; <lane> is that, a space and the group
    lane_due:<lane>:<p>  zset     id -> run_at (µs), or where the line has an order, the place in it: pending jobs of a lane
                                  that are not blocked, due and future
    lane_later:<queue>   zset     id -> run_at (µs): pending jobs of lanes that were due later when they entered; an entry whose
                                  time has come means nothing
    lane_pending         hash     queue -> number of its pending jobs in lanes that are not blocked
    lane_places          hash     id -> place in the order of its lane (µs), of live jobs that were replayed; else created_at
    lane_queues          set      queues that have or had lanes or lines. If it is absent, nothing else is asked
    lines:<queue>        zset     name -> 0: the lines of a queue that were declared or have lanes, by name
    line:<line>          hash     policy, declared, override (JSON), rule (what claims need of the policy), version,
                                  declared_at (µs), changed_at (µs), changed_by, reason, revision, running, starts,
                                  reordering (1: while its jobs get or lose their order). Without a rule it was not declared
    line_weights:<line>  hash     group -> its weight, as the policy says
    lanes:<line>         zset     group -> 0: the lanes of a line, by name
    lane:<line>          hash     group -> running, when it is ready, starts ...: one text
    ready:<line>         zset     group -> when the lane may give a job (µs): those that are not full and not empty

  Dependencies (core/dependencies.py; formats in lua/_edges.lua and lua/_releases.lua)
    parents              set      live jobs that have children
    kid:<bucket>         hash     parent -> its one child, or '' if it has several; and whether any child binds its result
    kids:<id>            zset     child -> 0: the children of a parent, from the second on, by id
    edge:<bucket>        hash     child -> the edge to its one parent, or how several are bound
    edges:<id>           hash     parent -> facts of the edge, of a child with several parents
    places:<id>          list     the parents of such a child in order
    releasing            list     what happened to parents, as far as their children were not followed yet, oldest first
    kept:<bucket>        hash     parent -> its task and how it ended, for children that bind it
    cancelled_by         hash     child -> the parent whose failure cancelled it

  Workflows
    workflow:<id>        hash     name, labels (JSON), created_at (µs), cancelled_at (µs, if it was cancelled)
    cancelled_workflows  set      workflows that were cancelled
    workflow_jobs:<id>   zset     job -> 0: its jobs, live or ended, by id
    workflows            zset     workflow -> 0: those that have jobs, by id
    workflows_of:<name>  zset     the same of one name
    open_workflows:<name>  zset   those of a name that may have live jobs

  Instances
    alive                zset     instance -> last heartbeat (µs)
    gone                 zset     instance -> when it left or was declared dead (µs)
    leader               hash     instance (or empty), term, since (µs), until (µs)
    inst:<instance>      hash     record (NewInstance as JSON), state, started_at, beat_at, beat, running, refused,
                                  ended_at, reason, left_rooms (1: gets no more messages)
    inbox:<instance>     list     room messages, oldest first (rooms.py)
    inboxes              set      instances that have messages

  Schedules
    schedule:<name>      hash     a schedule (_schedule.lua)
    schedules            zset     name -> 0: all schedules, by name
    next_fires           zset     name -> next_at (µs): schedules that have one
    intervals            zset     name -> µs: active schedules whose next fire is set by the end of a job, while they have none
    declared             zset     name -> when code last declared it (µs); retired ones are left out
    fires:<name>         zset     f (fired) or s (skipped) and fire time -> fire time (µs): the recorded fires
    fire_records:<name>  hash     the same member -> its record
    fires_by_time        zset     the same member, NUL, name -> the last fire time of the record (µs)
    once                 hash     key of a once-per-cluster step -> the instance that runs it, or done

  Locks
    locks                zset     lock -> 0: all known locks, by name
    locks_used           zset     lock -> last acquire (µs, to the hour)
    lock:<name>          hash     limit, per, last (ticket number), used_at, lanes (how many there ever were), released_at,
                                  released_by, released_reason
    waiters:<name>       zset     ticket -> its number: tickets that wait
    holders:<name>       zset     ticket -> its number: tickets that hold the lock
    leases:<name>        zset     ticket -> end of its lease (µs): both
    lanes:<name>         zset     lane -> lane: lanes that were given back
    grants:<name>        zset     ticket number -> when it was granted (µs): what a rate window counts
    ticket:<id>          hash     lock, number, lease, entered_at, granted_at, lane, owner, what
    released             hash     ticket -> who force-released it and the reason: the last thousand
    releases             list     the same tickets, newest first

  Audit and statistics
    audit                zset     entry -> 0: audit entries, by id
    audit_at             zset     entry -> when it began (µs)
    audit_unended        zset     entry -> 0: those that report their progress and have not ended
    audit_keys           hash     who NUL request key -> the entry of that request
    act:<id>             hash     act (the entry as JSON), at (µs), done_at (µs), touched, outcome, answer,
                                  matched, reported_at (µs), stopped_by
    interval:<resolution>:<at>  hash  queue, task, instance -> counts of one interval (stats.py); expires after its last write
    interval_total:<resolution>:<at>  hash  NUL, NUL, instance -> the same for all queues and tasks together
    intervals_of:<resolution>  zset  at -> at: the intervals of a resolution
    totals:<instance>    hash     queue, task -> what an instance has counted since it started
    totals               zset     instance -> when it last wrote its totals (µs)
    folded               hash     queue, task, position -> the sum of one counter over instances that are gone

  Published by scripts
    reply:<channel>      channel  jobs handed to the parked claim of one worker, the only subscriber (_handoff.lua)
    rooms                channel  instances that got messages, as text (empty: many)
    tickets              channel  a ticket and after how many µs its owner should check it, as text
    wake                 channel  the smallest run_at (µs) of jobs that became pending, as text

Only intervals and children expire by themselves. Scripts prune everything else together with what belongs to it.
"""

from drumbeat.ids import InstanceId


def bucket(packed: bytes) -> str:
    """The bucket of a job id: its first 9 hexadecimal digits, 4 s of enqueue time.

    A hash takes less memory than as many keys (a job alone in its bucket takes 600 bytes instead of 300), and buckets in order
    give ids in order.
    """
    return packed[:5].hex()[:9]


class RedisKeys:
    """Key names of one namespace, for commands outside scripts."""

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{{{namespace}}}:"
        self.meta = self.prefix + "meta"
        self.unsucceeded = self.prefix + "unsucceeded"
        self.dead = self.prefix + "dead"
        self.buckets = self.prefix + "buckets"
        self.wake = self.prefix + "wake"
        self.tickets = self.prefix + "tickets"
        self.rooms = self.prefix + "rooms"

    def act(self, id: str) -> str:
        return f"{self.prefix}act:{id}"

    def jobs(self, bucket: str) -> str:
        return f"{self.prefix}job:{bucket}"

    def runs(self, bucket: str) -> str:
        return f"{self.prefix}runs:{bucket}"

    def reply_channel(self, channel_id: str) -> str:
        return f"{self.prefix}reply:{channel_id}"

    def children(self, parent: bytes) -> bytes:
        return f"{self.prefix}children:".encode() + parent

    def workflow_jobs(self, workflow: str) -> str:
        return f"{self.prefix}workflow_jobs:{workflow}"

    def held(self, instance: InstanceId) -> str:
        return f"{self.prefix}held:{instance}"
