"""Process: starts a child, reads its output until the deadline, stops it, and returns its answer or a refusal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import selectors
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwise.targets.child.command import MARK, command, environment, write_request
from headwise.wording import LANGUAGES, Refusal, refusal

__all__ = ["in_child"]

# the last bytes of the printed output that are kept
PRINTED = 64 << 10
# the most bytes that user code may write to the answer's pipe
NOISE = 1 << 20
# seconds between checks whether the child has ended, since its own children may keep the pipes open
GLANCE = 0.05
# seconds to read the rest of the pipes
LAST = 2
WORDS = 300
PROCESSES = Path("/proc")


def in_child(
    entry: str,
    request: Mapping[str, Any],
    *,
    seconds: int = 60,
    megabytes: int = 4096,
    answer_megabytes: int = 64,
) -> dict[str, Any]:
    """The answer of the function `entry` ("package.module:function", a dict -> a dict) to a request, in a child.

    Request and answer are JSON, with NaN and inf allowed. The answer gets the key "printed",
    {"stdout": …, "stderr": …}, the last 64 kB of each. The child is isolated Python in a new session, folder and home,
    with one thread, without the environment of the user, standard input and GPUs.

    seconds: limit on wall clock and CPU time; then the child and all its processes are killed. megabytes: limit on its
    memory. answer_megabytes: limit on the answer. Errors: a Refusal of the function is raised again; any other end
    without an answer (an error, exit, a crash, a timeout) is a Refusal in one sentence.
    """
    mark = secrets.token_hex(16)
    home = Path(tempfile.mkdtemp(prefix="headwise-"))
    try:
        reading, writing = os.pipe()
        try:
            limits = {"seconds": seconds, "megabytes": megabytes, "answer_bytes": answer_megabytes << 20}
            write_request(home / "request.json", entry, request, pipe=writing, mark=mark, **limits)
            process = subprocess.Popen(
                command(home / "request.json"),
                cwd=home,
                env=environment(home, mark),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        output = _Output(process, reading, (answer_megabytes << 20) + NOISE, mark)
        try:
            in_time = output.listen(time.monotonic() + seconds)
        finally:
            status = _stop(process, mark)
            output.close()
    finally:
        _remove(home)
    return _answer(output, status, in_time=in_time, seconds=seconds, megabytes=megabytes, most=answer_megabytes)


class _Output:
    """The output of a child on its three pipes."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int, most: int, mark: str) -> None:
        self.answer = bytearray()
        self.printed = {"stdout": bytearray(), "stderr": bytearray()}
        self.is_noisy = False
        self._process, self._pipe, self._most = process, pipe, most
        self._head = re.compile(rb"\n%s (\d+)\n" % mark.encode())
        self._place: tuple[int, int] | None = None
        self._selector = selectors.DefaultSelector()
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr"), (pipe, "answer")):
            if stream is not None:
                os.set_blocking(stream if isinstance(stream, int) else stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, name)

    def listen(self, deadline: float) -> bool:
        """Read until the child has answered or ended; False: neither happened before the deadline."""
        while time.monotonic() < deadline:
            self._read(GLANCE)
            if self.payload() is not None or self.is_noisy or _has_ended(self._process):
                return True
        return False

    def payload(self) -> bytes | None:
        """The answer, which follows the mark and its length; None: it is not complete."""
        if self._place is None:
            match = self._head.search(self.answer)
            self._place = None if match is None else (match.end(), match.end() + int(match[1]))
        if self._place is None or len(self.answer) < self._place[1]:
            return None
        return bytes(self.answer[slice(*self._place)])

    def close(self) -> None:
        """Read the rest of the pipes and close them."""
        until = time.monotonic() + LAST
        # a process that survived may still print
        while self._read(0) and time.monotonic() < until:
            pass
        self._selector.close()
        os.close(self._pipe)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, wait: float) -> bool:
        """Read once from each ready pipe; whether any data came."""
        some = False
        for key, _ in self._selector.select(wait):
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            some = True
            if key.data == "answer":
                self.answer += data
                self.is_noisy = len(self.answer) > self._most
                if self.is_noisy:
                    self._selector.unregister(key.fileobj)
            else:
                kept = self.printed[key.data]
                kept += data
                del kept[:-PRINTED]
        return some


def _answer(
    output: _Output,
    status: int,
    *,
    in_time: bool,
    seconds: int,
    megabytes: int,
    most: int,
) -> dict[str, Any]:
    payload = output.payload()
    if payload is None:
        raise _silent(output, status, in_time=in_time, seconds=seconds)
    got = json.loads(payload)
    if "answer" in got:
        printed = {name: data.decode("utf-8", "replace") for name, data in output.printed.items()}
        return {**got["answer"], "printed": printed}
    if "large" in got:
        raise refusal("refuse.child_large", megabytes=most, got=-(-got["large"] // (1 << 20)))
    if got.get("refused") in LANGUAGES["en"]:
        raise Refusal(got["refused"], got["values"])
    if got["raised"] == "MemoryError":
        raise refusal("refuse.child_memory", megabytes=megabytes)
    raise refusal("refuse.child_raised", error=_one_line(f"{got['raised']}: {got['text']}".removesuffix(": ")))


def _silent(output: _Output, status: int, *, in_time: bool, seconds: int) -> Refusal:
    """The refusal for a child without an answer."""
    if output.is_noisy:
        return refusal("refuse.child_noise")
    if not in_time or -status in (signal.SIGXCPU, signal.SIGALRM):
        return refusal("refuse.child_time", seconds=seconds)
    if status < 0:
        with contextlib.suppress(ValueError):
            return refusal("refuse.child_signal", signal=signal.Signals(-status).name)
        return refusal("refuse.child_signal", signal=-status)
    lines = output.printed["stderr"].decode("utf-8", "replace").split("\n")
    words = next((_one_line(line) for line in reversed(lines) if line.strip()), "")
    if words:
        return refusal("refuse.child_exit_said", status=status, words=words)
    return refusal("refuse.child_exit", status=status)


def _one_line(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= WORDS else f"{shown[:WORDS]}…"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is not reaped, so that its number is not reused."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return process.poll() is not None


def _stop(process: subprocess.Popen[bytes], mark: str) -> int:
    """Kill a child, its process group, and marked processes outside of the group; the exit status of the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    # marked processes may fork while they are killed
    for _ in range(100):
        marked = list(_marked(mark))
        if not marked:
            break
        for number in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.01)
    return status


def _marked(mark: str) -> Iterator[int]:
    """The processes with the mark in their environment, without zombies; none where the system has no /proc."""
    wanted = f"{MARK}={mark}".encode()
    for folder in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _remove(folder: Path) -> None:
    """Remove a temporary folder, even where the code changed its permissions."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
