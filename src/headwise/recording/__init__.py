"""Recording: the torch operations that code runs, in order, with the source line of each."""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "TRIAL": "budget", "Budget": "budget", "Failure": "operations", "Guarded": "torch_limits",
    "Operation": "operations", "Rebound": "replay", "Recalled": "replay", "Record": "operations",
    "Replacing": "replay", "Site": "replay", "TensorSeen": "operations", "begin_anew": "random_numbers",
    "is_out_of_memory": "torch_limits", "record": "recorder", "seeded": "random_numbers", "site_of": "replay",
    "spend": "budget", "spent": "budget", "tensors": "identity",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.recording.budget import TRIAL as TRIAL
    from headwise.recording.budget import Budget as Budget
    from headwise.recording.budget import spend as spend
    from headwise.recording.budget import spent as spent
    from headwise.recording.identity import tensors as tensors
    from headwise.recording.operations import Failure as Failure
    from headwise.recording.operations import Operation as Operation
    from headwise.recording.operations import Record as Record
    from headwise.recording.operations import TensorSeen as TensorSeen
    from headwise.recording.random_numbers import begin_anew as begin_anew
    from headwise.recording.random_numbers import seeded as seeded
    from headwise.recording.recorder import record as record
    from headwise.recording.replay import Rebound as Rebound
    from headwise.recording.replay import Recalled as Recalled
    from headwise.recording.replay import Replacing as Replacing
    from headwise.recording.replay import Site as Site
    from headwise.recording.replay import site_of as site_of
    from headwise.recording.torch_limits import Guarded as Guarded
    from headwise.recording.torch_limits import is_out_of_memory as is_out_of_memory
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
