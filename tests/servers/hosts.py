"""Hosts on one machine: network namespaces, each with a loopback and two cables, one to the store's network and one to another.

    hub (this process)   store  198.18.0.1 --- s1 === eth0  198.18.0.11  host1
                         other  198.18.1.1 --- o1 === eth1  198.18.1.11  host1

Only for a process in a network and mount namespace of its own (`unshare --net --mount`): the networks are its own, lead nowhere
else, and end with it. The addresses are those reserved for tests of networks.
"""

import functools
import shutil
import subprocess

STORE_NETWORK, OTHER_NETWORK = "198.18.0", "198.18.1"
NOBODY_MAC = "02:00:00:00:00:99"


class Hosts:
    def __init__(self, count: int) -> None:
        self.names = [f"host{number}" for number in range(1, count + 1)]
        self.store_address, self.other_address = f"{STORE_NETWORK}.1", f"{OTHER_NETWORK}.1"

    def build(self) -> None:
        _run("mkdir -p /run/netns")
        _run("mount -t tmpfs drumbeat /run/netns")
        _run("ip link set lo up")
        for bridge, network in (("store", STORE_NETWORK), ("other", OTHER_NETWORK)):
            _run(f"ip link add name {bridge} type bridge")
            _run(f"ip address add {network}.1/24 dev {bridge}")
            _run(f"ip link set {bridge} up")
        for number, host in enumerate(self.names, start=1):
            _run(f"ip netns add {host}")
            _run(f"ip -n {host} link set lo up")
            for bridge, network, cable in (("store", STORE_NETWORK, 0), ("other", OTHER_NETWORK, 1)):
                _run(f"ip link add name {bridge[0]}{number} type veth peer name eth{cable} netns {host}")
                _run(f"ip link set {bridge[0]}{number} master {bridge} up")
                _run(f"ip -n {host} address add {network}.{10 + number}/24 dev eth{cable}")
                _run(f"ip -n {host} link set eth{cable} up")

    def wrap(self, host: str, command: list[str]) -> list[str]:
        """The command that runs another on a host, as the same process."""
        return ["ip", "netns", "exec", host, *command]

    def cut(self, host: str) -> None:
        """From the store, in both directions: what is sent is lost, and nobody is told."""
        _run(f"ip link set s{self._number(host)} down")

    def deafen(self, host: str) -> None:
        """It sends, and hears no answer."""
        _run(f"ip neighbour replace {self._address(host)} lladdr {NOBODY_MAC} dev store nud permanent")

    def mute(self, host: str) -> None:
        """It hears, and what it sends is lost."""
        _run(f"ip -n {host} neighbour replace {self.store_address} lladdr {NOBODY_MAC} dev eth0 nud permanent")

    def heal(self, host: str) -> None:
        _run(f"ip link set s{self._number(host)} up")
        _run(f"ip neighbour del {self._address(host)} dev store", check=False)
        _run(f"ip -n {host} neighbour del {self.store_address} dev eth0", check=False)

    def _number(self, host: str) -> int:
        return self.names.index(host) + 1

    def _address(self, host: str) -> str:
        return f"{STORE_NETWORK}.{10 + self._number(host)}"


def _run(command: str, *, check: bool = True) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"


@functools.cache
def find_obstacle() -> str | None:
    """Why this process may make no hosts; None: it may."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    steps = ("ip link add name bridge0 type bridge", "ip link add name one type veth peer name other")
    trial = " && ".join((*steps, "mount -t tmpfs drumbeat /run"))
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", trial], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"this process may make no networks: {tried.stderr.strip()}"
