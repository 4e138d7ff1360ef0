"""What the tests let a child do: functions of a request, most of which do something that a stranger's code might."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from headwise.wording import refusal


def told(request):
    """What a child can know about where and how it runs."""
    print("printed, 打印")
    print("complained", file=sys.stderr)
    return {
        "request": request,
        "numbers": [float("nan"), float("inf"), -0.0, 0.1],
        "folder": str(Path.cwd()),
        "home": os.environ["HOME"],
        "variables": sorted(os.environ),
        "arguments": sys.argv[1:],
        "input": sys.stdin.read(),
        "session": os.getsid(0) == os.getpid(),
        "torch": "torch" in sys.modules,
        "caches": not sys.dont_write_bytecode,
        "isolated": sys.flags.isolated,
    }


def imports_headwise(request):
    import headwise

    return {"version": headwise.__version__}


def refuses(request):
    raise refusal("refuse.layer", model="a", last=5, count=6, got=7)


def fails(request):
    return {"x": request["not there"]}


def says_nothing_of_its_error(request):
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no words")

    raise Mute


def ends_base_exception(request):
    class Own(BaseException):
        pass

    raise Own("of its own")


def exits(request):
    sys.exit("bye")


def interrupts(request):
    raise KeyboardInterrupt


def exits_at_once(request):
    os._exit(3)


def crashes(request):
    ctypes.string_at(1)


def kills_itself(request):
    os.kill(os.getpid(), signal.SIGTERM)


def sleeps(request):
    time.sleep(1000)


def ignores_signals_and_sleeps(request):
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    time.sleep(1000)


def counts_forever(request):
    while True:
        pass


def prints_much(request):
    for at in range(request["megabytes"]):
        sys.stdout.write(f"{at:08}" * (1 << 17))
    print("the end")
    return {"done": True}


def closes_everything(request):
    os.closerange(0, 256)
    return {"done": True}


def closes_stdout(request):
    os.close(1)
    sys.stdout = None
    return {"done": True}


def writes_on_every_pipe(request):
    for number in range(3, 64):
        try:
            os.write(number, b'{"answer": {"done": "forged"}}\n' * request["times"])
        except OSError:
            continue
    return {"done": True}


def recurses(request):
    return recurses(request)


def recurses_without_limit(request):
    sys.setrecursionlimit(1 << 30)

    class Deep:
        def __getattr__(self, name):
            return getattr(self, name + "x") if len(name) < 1 << 28 else 0

    nested = []
    for _ in range(10**6):
        nested = [nested]
    return {"x": repr(nested), "y": Deep().a}


def allocates(request):
    return {"size": len(bytearray(request["gigabytes"] << 30))}


def answers_much(request):
    return {"text": "x" * (request["megabytes"] << 20)}


def answers_no_json(request):
    return {"x": object()}


def changes_folder_and_rights(request):
    Path("sub").mkdir()
    Path("sub/file").write_text("x")
    Path("sub").chmod(0)
    os.chdir("/")
    return {"done": True}


def forks(request):
    """Both copies go on to answer, the new one first."""
    if os.fork() == 0:
        return {"child": True}
    time.sleep(0.5)
    return {"child": False}


def leaves_a_daemon(request):
    """One that has left the session, and holds the pipes."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True, stdin=subprocess.DEVNULL
    )
    return {"process": process.pid}


def leaves_threads(request):
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(1000,)).start()
    return {"done": True}


def sets_the_start_method(request):
    multiprocessing.set_start_method("fork")
    process = multiprocessing.Process(target=time.sleep, args=(1000,))
    process.start()
    return {"process": process.pid}


def writes_a_large_file(request):
    with Path("large").open("wb") as file:
        file.truncate(1 << 40)
    return {"done": True}


def torch_is_there(request):
    import torch

    return {"threads": torch.get_num_threads(), "cuda": torch.cuda.is_available()}
