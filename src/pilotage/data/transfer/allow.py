"""Hosts and folders that jobs may reach, as the administrator allows them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from pilotage.base import errors, paths, text
from pilotage.data.transfer.url import Url

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Finds the addresses of a host.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: Addresses at which clouds tell machines their secrets.
_METADATA = frozenset({"169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: The port of a scheme, if an address names none.
DEFAULT_PORT = {"http": 80, "https": 443, "sftp": 22, "rsync": 873, "root": 1094, "roots": 1094}


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The addresses that data may come from and go to."""

    #: Schemes such as `https`.
    schemes: tuple[str, ...] = ()
    #: Names, `*.names`, `*`, addresses and networks, each perhaps with a `:port`.
    hosts: tuple[str, ...] = ()
    #: If given, only addresses of the whole world and of these networks are connected to.
    private: tuple[str, ...] | None = None
    #: Folders of this machine that `file:` may read.
    read: tuple[str, ...] = ()
    #: Folders of this machine that `file:` may write.
    write: tuple[str, ...] = ()


def refusal(allowed: Allowed, url: Url, *, write: bool = False) -> str:
    """Return why an address may not be used; nothing if it may."""
    if url.scheme not in allowed.schemes:
        return f"the scheme `{url.scheme}` is not allowed here"
    if url.scheme == "file":
        roots = allowed.write if write else allowed.read
        if not any(_below(url.path, root) for root in roots):
            return f"{text.show(url.path)} is in none of the folders that are allowed"
        return ""
    if url.scheme == "hub" and url.place == "port":
        # There is one, and the settings of this site name it.
        return ""
    if not any(_fits(entry, url) for entry in allowed.hosts):
        return f"the host {url.place} is not allowed here"
    address = _address(url.host)
    return refused_address(allowed, address) if address else ""


def check(allowed: Allowed, url: Url, *, write: bool = False) -> None:
    """Raise `Denied` if an address may not be used."""
    if why := refusal(allowed, url, write=write):
        hint = "the site's administrator lists schemes, hosts and folders for staging"
        raise errors.Denied(f"{url}: {why}", hint=hint)


def refused_address(allowed: Allowed, address: Address) -> str:
    """Return why connections to an address are refused, unless it is listed itself."""
    if allowed.private is not None:
        if open_to_all(address, allowed.private):
            return ""
        return f"{address} is of this machine or a private network"
    plain = getattr(address, "ipv4_mapped", None) or address
    special = (
        plain.is_loopback or plain.is_link_local or plain.is_unspecified or plain.is_multicast
        or str(plain) in _METADATA
    )  # fmt: skip
    if not special or any(_holds(entry, plain) for entry in allowed.hosts):
        return ""
    return f"{plain} is an address of this machine or of its neighbours, and is not listed"


def open_to_all(address: Address, private: Sequence[str]) -> bool:
    """Return whether an address is one of the whole world, or in a network that is named."""
    if any(address in ipaddress.ip_network(one) for one in private):
        return True
    if any(not open_to_all(one, private) for one in _within(address)):
        return False
    return address.is_global and not address.is_multicast


def _within(address: Address) -> list[Address]:
    """Return the addresses of version 4 that one of version 6 leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    found += address.teredo or ()
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


async def pin(allowed: Allowed, url: Url, resolve: Resolve | None = None) -> str:
    """Resolve a host once, and return an address that may be connected to.

    A name that later resolves elsewhere cannot redirect the connection.
    """
    if address := _address(url.host):
        found: Sequence[str] = [str(address)]
    else:
        found = await (resolve or _resolve)(url.host)
    why = "it has no address"
    for one in found:
        why = refused_address(allowed, ipaddress.ip_address(one.partition("%")[0]))
        if not why:
            return one
    raise errors.Denied(f"{url}: {why}", hint="list the address itself if it is meant")


async def check_addresses(allowed: Allowed, url: Url, resolve: Resolve | None = None) -> None:
    """Do the same for a program that resolves by itself, which may know names that we do not."""
    try:
        await pin(allowed, url, resolve)
    except errors.Unavailable:
        return


async def _resolve(host: str) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise errors.Unavailable(f"the host {host} cannot be found: {error.strerror}") from error
    return [str(address[0]) for *_, address in found]


def _below(path: str, root: str) -> bool:
    return paths.contains(root, path)


def _split(entry: str) -> tuple[str, int]:
    """Take a port off an entry; IPv6 with a port is written in brackets."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, int(port[1:]) if port[1:].isdecimal() else 0
    host, colon, port = entry.rpartition(":")
    if colon and ":" not in host and port.isdecimal():
        return host, int(port)
    return entry, 0


def _fits(entry: str, url: Url) -> bool:
    host, port = _split(entry)
    if port and port != (url.port or DEFAULT_PORT.get(url.scheme, 0)):
        return False
    if host == "*":
        return True
    if host.startswith("*."):
        return url.host.endswith(host[1:].lower())
    address = _address(url.host)
    return _holds(entry, address) if address else host.lower() == url.host


def _holds(entry: str, address: Address) -> bool:
    host, _ = _split(entry)
    try:
        return address in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
