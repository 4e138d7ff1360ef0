"""A fresh Python process, so that what a test asks about imports is not answered by other tests' imports."""

import subprocess
import sys

BLOCKING = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked by the test)", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run_fresh(source: str, *, without: tuple[str, ...] = ()) -> str:
    """What the source prints in a new process in which the named modules cannot be imported."""
    blocking = BLOCKING.format(names=set(without)) if without else ""
    done = subprocess.run([sys.executable, "-c", blocking + source], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the fresh process ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
