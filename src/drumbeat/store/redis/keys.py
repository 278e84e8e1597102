"""Every key of a Redis store: its name, its type and what it means. Scripts build the same names from KEYS[1].

All begin with `{namespace}:`, one hash tag, so that in a cluster they live in one slot, on one node, and a script can touch
them all. The bare prefix is no key and never becomes one: scripts get it as KEYS[1], for the route, and take the names below
from it. While a slot moves from node to node the old node then sends every call away, so none runs on half of the keys.

An <id> is the 16 bytes of a job's id; an <instance> its 16 characters. µs are microseconds since 1970 by the server's clock.

    meta                 hash     version, oldest_code, store (a random id, made once), pruned_before (µs)
    job:<bucket>         hash     id -> body of every job, live, ended or dead: its immutable part. See `bucket`
    buckets              zset     bucket -> its number: all that exist
    ids:<bucket>         list     how its ids are listed: ids, and first, last and size of runs (see lua/_base.lua)
    runs:<bucket>        hash     first and last id of a run -> all of its ids, one after the other, ascending
    due:<queue>:<p>      zset     id -> run_at (µs): pending jobs of priority p that wait for nothing, due and future alike
    queues               set      queues that have or had jobs
    more                 hash     id -> run_at, token, failures ... (see lua/_base.lua) of live jobs that were claimed or moved
                                  before; none: run_at is the body's due_at, and the rest is nothing
    wait:<why>NUL<queue>:<p>  zset  id -> run_at: pending jobs that wait for something other than time
    waits:<why>          zset     id -> since when it waits (µs)
    waiting              hash     why -> how many wait for it
    blocked              hash     queue -> how many of it wait for something other than time
    held:<instance>      zset     id -> token: what runs under an instance. The fence: an outcome counts only if it is here
    cancels:<instance>   set      ids of its running jobs that somebody wants cancelled
    progress             hash     id -> JSON string, of running jobs
    keys                 hash     u (unique jobs) or k (others), task, NUL, key -> id of a live job
    keyset:<field>       set      ids of further live jobs of the same field of `keys`
    done:<bucket>        hash     id -> how it ended (see lua/_transitions.lua)
    history              zset     id -> finished_at (µs): ended jobs, dead letters excepted
    unsucceeded          zset     id -> 0: those of history that were cancelled or discarded, in the order of their ids
    dead                 zset     id -> 0: the dead letters, in the order of their ids
    tries:<id>           list     JSON of the earlier attempts of a job
    count                hash     task NUL live, succeeded, dead or cancelled -> how many
    paused               hash     queue -> JSON array [at, by, reason]
    standing             zset     instance -> since when a claim of it stands (µs): it found nothing (see lua/_handoff.lua)
    asked                hash     instance -> what its last claim that stood asks for
    alive                zset     instance -> when its heart beat last (µs)
    gone                 zset     instance -> when it left or was buried (µs)
    leader               hash     instance (or nothing), term, since (µs), until (µs)
    inst:<instance>      hash     record (NewInstance as JSON), state, started_at, beat_at, beat, running, refused,
                                  ended_at, reason, left_rooms (1: nobody sends it messages any more)
    schedule:<name>      hash     a schedule (see lua/_schedule.lua)
    schedules            zset     name -> 0: all schedules, in the order of their names
    moments              zset     name -> next_at (µs): the schedules that have one
    intervals            zset     name -> µs: active series whose next moment the end of a job sets, while they have none
    declared             zset     name -> when it was last declared (µs): schedules of code that are not retired
    fires:<name>         zset     f (fired) or s (skipped) and moment -> moment (µs): what is on record of a schedule
    records:<name>       hash     the same -> its record
    fired                zset     the same, NUL, name -> the record's last moment (µs)
    once                 hash     what is done once in the whole cluster -> the instance that is at it, or done
    locks                zset     lock -> 0: all that are known, in the order of their names
    locks_used           zset     lock -> when somebody last entered it (µs, exact to the hour)
    lock:<name>          hash     limit, per, last (number of a ticket), used_at, lanes (how many there ever were), released_at,
                                  released_by, released_reason
    line:<name>          zset     ticket -> its number: those who wait
    holders:<name>       zset     ticket -> its number: those who hold it
    leases:<name>        zset     ticket -> when its lease ends (µs): all of them
    lanes:<name>         zset     lane -> the same: those that were given back
    grants:<name>        zset     number of a ticket -> when it was granted (µs): what a rate window counts
    ticket:<id>          hash     lock, number, lease, entered_at, granted_at, lane, owner, what
    released             hash     ticket -> by whom and why it was taken away by force: the last thousand
    releases             list     the same tickets, the newest first
    audit                zset     act -> 0: what people did, in the order of their ids
    audit_at             zset     act -> when it was begun (µs)
    audit_keys           hash     who NUL request key -> the act that it stands for
    act:<id>             hash     act (NewAct as JSON), at (µs), done_at (µs), touched, outcome, answer
    inbox:<instance>     list     messages of rooms, the oldest first (see rooms.py)
    inboxes              set      instances that have messages
    stretch:<resolution>:<at>  hash    queue, task, instance -> what was counted in a stretch of time (see stats.py); it has a time
                                  to live, from when it was last written
    overall:<resolution>:<at>  hash    NUL, NUL, instance -> the same for all queues and tasks together
    stretches:<resolution>    zset     at -> at: the stretches of a length
    totals:<instance>    hash     queue, task -> what an instance has counted since it began
    totals               zset     instance -> when it last wrote its totals (µs)
    folded               hash     queue, task, place -> the sums of one number over instances that have gone
    door:<door>          channel  jobs that were given to the claim of a worker, which alone hears it (see lua/_handoff.lua)
    rooms                channel  instances for whom messages came, as text (none: for many); published by the scripts
    tickets              channel  a ticket and after how many µs its owner should look, as text; published by the scripts
    wake                 channel  the smallest due moment (µs) of jobs that came, as text; published by the scripts

Nothing else has a time to live: what is old is pruned by a script, together with everything that belongs to it.
"""

from drumbeat.ids import InstanceId


def bucket(packed: bytes) -> str:
    """The bucket of a job's id: its first 9 hexadecimal digits, which is 4 s of enqueue time. A hash takes less memory than as
    many keys (a job that is alone in its bucket takes 600 bytes, not 300), and a walk of the buckets is a walk of the ids."""
    return packed[:5].hex()[:9]


class RedisKeys:
    """The names of one namespace's keys, for commands that are not scripts."""

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
        return f"{self.prefix}door:{channel_id}"

    def held(self, instance: InstanceId) -> str:
        return f"{self.prefix}held:{instance}"
