"""rediss://: a line that the driver has opened with TLS is as good as any other, also the one that listens."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from drumbeat.core.job import OutcomeKind
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.redis import RedisStore
from tests.contract.making import add, claim, end, ids, new_job, worker
from tests.engines.redis.conftest import address_of
from tests.waiting import until

# Without a certificate, so that none must be made: what is shown is the way of the bytes, not who is at its end.
CIPHERS = "AECDH-AES256-SHA:ADH-AES256-GCM-SHA384:@SECLEVEL=0"


@asynccontextmanager
async def behind_tls(port: int) -> AsyncIterator[int]:
    """A port where the same server is found with TLS: the servers of the wheels know none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass  # one side has gone, so the other must
        finally:
            target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as both:
            both.create_task(pass_on(reader, inner_writer))
            both.create_task(pass_on(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_jobs_and_hints_travel_by_tls(url: str) -> None:
    place = urlsplit(url)
    assert place.port is not None
    async with behind_tls(place.port) as port:
        secret = (
            f"rediss://127.0.0.1:{port}{place.path}?ssl_cert_reqs=none&ssl_check_hostname=false&ssl_ciphers={CIPHERS}"
        )
        heard: list[int] = []
        async with await RedisStore.open(address_of(secret)) as store, store.wake.listen(Subscriber(heard.append)):
            instance = await worker(store)
            large = new_job(args='{"name":"' + "x" * 300_000 + '"}')
            added = await add(store, large, *(new_job() for _ in range(500)))
            await until(lambda: heard, deadline=5, what="a hint")
            jobs = await claim(store, instance, limit=1000)
            assert sorted(ids(jobs)) == sorted(added)
            assert {job.args for job in jobs if job.id == large.id} == {large.args}
            assert await end(store, instance, jobs[0], OutcomeKind.SUCCEEDED) == "applied"
