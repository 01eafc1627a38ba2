"""A TCP proxy before a broker, behind which one process can be cut off while all others go on."""

from __future__ import annotations

import contextlib
import socket
import threading

import psutil

_CHUNK = 65_536


class Gate:
    """Listens at one port of this machine and passes on to another.

    Of a process that is cut off nothing gets through, in neither direction, and nothing is lost:
    as in a network that is cut, its connections stay, and are silent.
    """

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._cut_off: int | None = None
        self._silent: set[int] = set()
        """The ports of the process that is cut off."""
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_off(self, process: int) -> None:
        """Nothing of this process gets through any more."""
        self._open.clear()
        self._cut_off = process
        self._silent = _ports(process)

    def mend(self) -> None:
        """All gets through again, what was written meanwhile too."""
        self._cut_off = None
        self._open.set()

    def close(self) -> None:
        """Pass on nothing any more."""
        self.mend()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, (_, port) = self._listener.accept()
                cut_off = self._cut_off
                if cut_off is not None and port in _ports(cut_off):
                    self._silent.add(port)
                broker = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [caller, broker]
                for pair in ((caller, broker), (broker, caller)):
                    threading.Thread(target=self._pass_on, args=(*pair, port), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if port in self._silent:
                    self._open.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def _ports(process: int) -> set[int]:
    """Those from which a process itself speaks, without its children."""
    return {each.laddr.port for each in psutil.Process(process).net_connections("tcp")}
