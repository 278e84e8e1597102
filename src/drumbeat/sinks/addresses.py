"""Which network addresses a webhook may be sent to.

Names are resolved here, and the connection is made to the resolved address: a name that changes in between has no effect.
"""

import asyncio
import ipaddress
import socket

from drumbeat.sinks.sink import DeliveryFailed, SinkUnavailable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Not globally reachable, by the registries of IANA. Written out, because `ipaddress` differs between versions of Python, and an
# address that a newer one refuses must not be reachable with an older one.
_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(each)
    for each in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = [ipaddress.IPv6Network(each) for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]


def is_public(address: Address) -> bool:
    """Whether it is globally reachable: no loopback, private, link-local or multicast address, nor one embedded in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        if (inner := _embedded_ipv4(address)) is not None:
            return is_public(inner)
        return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
    return not any(address in network for network in _NOT_PUBLIC_V4)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address embeds."""
    if address in _NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour


async def resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The addresses of a host that may be connected to.

    Raises:
        SinkUnavailable: the name cannot be resolved now.
        DeliveryFailed: all its addresses are forbidden.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SinkUnavailable(f"{host} cannot be resolved: {error}") from error
    # A link-local address has its interface after a %; it is never public.
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    allowed = [each for each in addresses if allow_private or is_public(ipaddress.ip_address(each.partition("%")[0]))]
    if not allowed:
        raise DeliveryFailed(f"{host} is a private address, and allow_private is not set")
    return allowed
