"""`python -m tests.soak`: soak one engine, or all side by side; a verdict as JSON. The folder of a failed run is kept."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from tests.soak.program import PLANTS
from tests.soak.run import SoakPlan, SoakRun
from tests.soak.stores import STORES


@click.command()
@click.option("--engine", type=click.Choice(sorted(STORES)), help="Default: all, side by side.")
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--rate", default=60.0, show_default=True, help="Jobs a second.")
@click.option("--plant", type=click.Choice(PLANTS), help="A leak, to see that the verdict fails.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where everything is written, and kept.")
def main(engine: str | None, minutes: float, rate: float, plant: str | None, folder: Path | None) -> None:
    if engine is None:
        sys.exit(soak_all(folder))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"drumbeat-soak-{engine}-")) if folder is None else folder
    plan = SoakPlan(engine=engine, seconds=minutes * 60, rate=rate, folder=place, plant=plant or "")
    try:
        verdict = asyncio.run(SoakRun(plan).run())
    except BaseException:
        print(f"the run has failed; everything is in {place}", file=sys.stderr)
        raise
    text = msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode()
    (place / "verdict.json").write_text(text)
    print(text)
    if not verdict.passed:
        for line in (*verdict.not_flat, *verdict.violations):
            print(f"{engine}: {line}", file=sys.stderr)
        print(f"{engine}: everything is in {place}", file=sys.stderr)
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place, ignore_errors=True)


def soak_all(folder: Path | None) -> int:
    """Each engine in a process of its own, with the options of this one."""
    running = []
    for engine in STORES:
        own = [] if folder is None else ["--folder", str(folder / engine)]
        running.append(subprocess.Popen([sys.executable, "-m", "tests.soak", "--engine", engine, *sys.argv[1:], *own]))
    return max(process.wait() for process in running)


if __name__ == "__main__":
    main()
