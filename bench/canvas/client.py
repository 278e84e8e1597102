"""The client's process: calls one function of a program, prints what it returned as one line of JSON.

python -m bench.canvas.client MODULE FUNCTION '{"argument": ...}'
"""

import asyncio
import inspect
import json
import sys
from importlib import import_module


def main(module: str, function: str, arguments: str) -> None:
    answer = getattr(import_module(module), function)(**json.loads(arguments))
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
