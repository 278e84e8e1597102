"""`drumbeat signal`: send a signal to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from drumbeat.cli import completion, output
from drumbeat.cli.audit_scope import run_audited
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import KEY, NAME, CliTarget, reason_option, target_command, target_options

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat


@target_command("signal", reason_option, *target_options)
@click.argument("words", nargs=-1, required=True, metavar="[ID] NAME [PAYLOAD]", shell_complete=completion.jobs)
@click.option(
    "--task",
    type=NAME,
    shell_complete=completion.tasks,
    help="With --key, in the place of ID: the live job of this key.",
)
@click.option("--key", type=KEY, help="Together with --task.")
def command(target: CliTarget, /, words: tuple[str, ...], task: str | None, key: str | None) -> None:
    """Send a signal to a job, which gets it from wait_for(NAME), now or later, once.

    PAYLOAD is JSON; without it, it is null.

    \b
      drumbeat signal 0192f3a1-... approved '{"by": "ann"}'
      drumbeat signal approved --task fulfil --key order-42
    """
    if bool(task) != bool(key):
        raise BadInput("say which job gets the signal: its id, or --task and --key together")
    id, rest = (None, words) if task else (words[0], words[1:])
    if not 1 <= len(rest) <= 2:
        raise BadInput("say what to send: [ID] NAME [PAYLOAD]")
    name, payload = rest[0], _read_payload(rest[1] if len(rest) == 2 else "null")

    async def send(app: Drumbeat) -> str:
        return await app.signal(id, name, payload, task=task, key=key)

    on = f"task={task} key={key}" if id is None else id
    sent = run_audited(target, "jobs.signal", on, send, count_touched=lambda _: 1)
    output.report(target, {"id": sent}, f"The signal {name} is sent to {on}.")


def _read_payload(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"the payload is no JSON: {error}") from error
