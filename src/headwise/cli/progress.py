"""What is being done, said on stderr while it takes time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headwise.wording import say
from headwise.wording.screen import visible

__all__ = ["told"]


@contextmanager
def told(lang: str) -> Iterator[Callable[[str, Mapping[str, object]], None]]:
    """A block in which the function given says each slow step, beside a turning sign; nothing where no one watches."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status(Text(say("step.starting", lang=lang))) as status:

        def tell(key: str, values: Mapping[str, object]) -> None:
            status.update(Text(visible(say(key, lang=lang, **values))))

        yield tell
