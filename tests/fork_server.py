"""A fork server: a process that has imported torch and headwise, and forks the children that tests ask for.

A child costs mostly its imports, a second on a fast machine. Here `subprocess.Popen` of the child process is replaced:
what runs after the fork is the same file with the same request, variables, folder, pipes and limits. It forks only
while it has one thread. What is about the start itself (isolation, variables, what is left behind) starts real ones.
"""

import contextlib
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

__all__ = ["Child", "Server", "is_supported"]

# what the children of the commands answer with
PRELOADED = (
    "headwise.diagnosis.child",
    "headwise.pages.code_child",
    "headwise.tracing.child",
    "headwise.tracing.worked_example_child",
)
THREADS = Path("/proc/self/task")
MOST = 1 << 16
# above the numbers that a request may name
HIGH = 500


def is_supported() -> bool:
    """Whether this system has what a server needs: packets that carry open files, and a count of threads."""
    return sys.platform == "linux"


class Server:
    """A running server; `child` stands in for subprocess.Popen."""

    def __init__(self, folder: Path) -> None:
        from headwise.targets.child.command import command, environment

        self._channel, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        python = command(folder)[:-2]
        with there, contextlib.ExitStack() as unless_started:
            unless_started.callback(self._channel.close)
            self._process = subprocess.Popen(
                [*python, str(Path(__file__)), str(there.fileno()), json.dumps(sys.path)],
                env=environment(folder, "fork-server"),
                stdin=subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
                cwd=folder,
            )
            unless_started.pop_all()
        self._ends: dict[int, int] = {}

    def child(self, command: list[str], **options: Any) -> "Child":
        """A child as subprocess.Popen would start it."""
        return Child(self, command, **options)

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """The number of a new process that runs a request with these open files."""
        socket.send_fds(self._channel, [json.dumps(request).encode()], files)
        while not isinstance(answer := self._heard(), int):
            pass
        return answer

    def status(self, number: int, *, wait: bool) -> int | None:
        """How a child ended, as subprocess tells it; None while it runs."""
        self._channel.setblocking(wait)
        try:
            while number not in self._ends:
                self._heard()
        except BlockingIOError:
            return None
        finally:
            self._channel.setblocking(True)
        return self._ends.pop(number)

    def close(self) -> None:
        """End the server, and its children with it."""
        self._channel.close()
        self._process.wait()

    def _heard(self) -> int | None:
        """The number of a process that was forked; None where the message tells how one ended."""
        data = self._channel.recv(MOST)
        if not data:
            raise RuntimeError(f"the fork server ended with status {self._process.wait()}: see what it wrote above")
        message = json.loads(data)
        self._ends.update({int(number): status for number, status in message.get("ended", {}).items()})
        return message.get("forked")


class Child:
    """A forked child, with what is used of subprocess.Popen."""

    def __init__(
        self,
        server: Server,
        command: list[str],
        *,
        cwd: Path,
        env: dict[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int],
        start_new_session: bool,
    ) -> None:
        if (stdin, stdout, stderr) != (subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE) or not start_new_session:
            raise ValueError("the fork server knows one way to start a child: look at tests/fork_server.py")
        self._server, self.returncode = server, None
        (out, writes_out), (err, writes_err) = os.pipe(), os.pipe()
        request = {"arguments": command[-2:], "folder": str(cwd), "variables": env, "pipe": pass_fds[0]}
        try:
            self.pid = server.fork(request, [writes_out, writes_err, pass_fds[0]])
        finally:
            os.close(writes_out)
            os.close(writes_err)
        self.stdout: io.FileIO = io.FileIO(out)
        self.stderr: io.FileIO = io.FileIO(err)

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.status(self.pid, wait=False)
        return self.returncode

    def wait(self) -> int:
        """The exit status, once it has ended."""
        if self.returncode is None:
            self.returncode = self._server.status(self.pid, wait=True)
        return self.returncode


def serve(channel: socket.socket) -> None:
    """Fork a child for each request, and tell its number and how it ended, until nobody listens."""
    _preload()
    reads, wakes = socket.socketpair()
    for end in (reads, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(reads, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if reads in ready:
                with contextlib.suppress(BlockingIOError):
                    reads.recv(MOST)
                _send(channel, {"ended": dict(_ended())})
            if channel in ready:
                data, files, *_ = socket.recv_fds(channel, MOST, 3)
                if not data:
                    return
                _send(channel, {"forked": _forked(json.loads(data), files)})


def _preload() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
        for name in PRELOADED:
            importlib.import_module(name)


def _ended():
    """The children that have ended, with their status."""
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            yield end[0], os.waitstatus_to_exitcode(end[1])


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        channel.send(json.dumps(message).encode())


def _forked(request: dict[str, Any], files: list[int]) -> int:
    threads = len(list(THREADS.iterdir()))
    if threads != 1:
        raise RuntimeError(f"the fork server must have 1 thread, but it has {threads}: what it imports must start none")
    reads, writes = os.pipe()
    number = os.fork()
    if not number:
        # whatever happens here must not go on as a second server
        try:
            _become(request, files, writes)
        finally:
            os._exit(70)
    for file in (*files, writes):
        os.close(file)
    # until it leads a session of its own, it could not be killed as one
    os.read(reads, 1)
    os.close(reads)
    return number


def _become(request: dict[str, Any], files: list[int], writes: int) -> None:
    """Take the place of a process that was started with the request: its session, variables, folder and files."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.write(writes, b"1")
    high = [os.dup2(file, HIGH + place, inheritable=False) for place, file in enumerate(files)]
    os.closerange(3, HIGH)
    for file, number in zip(high, (1, 2, request["pipe"]), strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    sys.argv[:] = request["arguments"]
    runpy.run_path(request["arguments"][0], run_name="__main__")


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    serve(socket.socket(fileno=int(sys.argv[1])))
