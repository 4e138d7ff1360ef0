"""Text runs: a model runs on a text, and what that shows is printed and written: links, or steps of a target."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headwise.cli.output_file import OutputFile
from headwise.cli.progress import progress_bar
from headwise.pages.files import check_output
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["given", "show_text"]


def show_text(asked: dict[str, Any], place: OutputFile) -> None:
    """Run a model on a text, print what its heads link, or what it generates, and write the page."""
    count, image, lang = asked.pop("generate"), asked.pop("image"), asked["lang"]
    if image is not None:
        _show_image(image, asked | {"generate": count}, place)
        return
    if asked["model"] is not None and (count is not None or asked["pair"] is not None):
        from headwise.pages.models import has_decoder

        if has_decoder(asked["model"]):
            _show_target(asked, count, place)
            return
    if count is not None:
        _show_generation(asked, count, place)
        return
    with progress_bar(lang) as tell:
        from headwise.pages.files import write
        from headwise.pages.text_look import TextRequest, looked

        check_output(place.file, force=place.force)
        result = looked(TextRequest(**asked), tell)
        tell("step.writing", {"file": place.file})
        result = write(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    from rich.console import Console

    from headwise.pages.terminal import show

    _write_any_sign()
    show(result, Console())


# what a run that is shown by its steps has no use for
STEPS_LEAVE = {
    "--query": "query", "--against": "against", "--against-model": "against_model", "--ablate": "ablate",
    "--layer": "layers", "--head": "heads",
}  # fmt: skip


def _show_image(image: Path, asked: Mapping[str, Any], place: OutputFile) -> None:
    """Run a vision model on an image, say what it is and write the page."""
    options = {"--pair": "pair", "--cut": "cut", "--generate": "generate", **STEPS_LEAVE}
    if unread := given({option: asked[name] or None for option, name in options.items()}):
        raise refusal("refuse.image_alone", given=", ".join(unread))
    if asked["model"] is None:
        raise refusal("refuse.image_model")
    check_output(place.file, force=place.force)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.files import write_code
        from headwise.pages.image_look import ImageRequest, look_at_image

        result = look_at_image(ImageRequest(image, asked["model"], lang), tell)
        write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    _write_any_sign()
    click.echo(visible(str(result)))
    click.echo(visible(say("look.wrote", lang=lang, file=place.file)))


def _show_target(asked: Mapping[str, Any], count: int | None, place: OutputFile) -> None:
    """Run an encoder with a decoder, print what each token of its target attends to and write the page."""
    if unread := given({option: asked[name] or None for option, name in STEPS_LEAVE.items()}):
        raise refusal("refuse.target_alone", given=", ".join(unread))
    if count is not None and asked["pair"] is not None:
        raise refusal("refuse.one_target")
    check_output(place.file, force=place.force)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.encoder_decoder import TargetRequest, look_at_target, show_target
        from headwise.pages.files import write_code

        request = TargetRequest(asked["text"], asked["model"], asked["pair"], count, asked["cut"], lang)
        result = look_at_target(request, tell)
        write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    from rich.console import Console

    _write_any_sign()
    show_target(result, Console())
    click.echo(visible(say("look.wrote", lang=lang, file=place.file)))


def _show_generation(asked: Mapping[str, Any], count: int, place: OutputFile) -> None:
    """Let a model generate, print its steps and write the page."""
    options = {"--pair": "pair", **STEPS_LEAVE}
    if unread := given({option: asked[name] or None for option, name in options.items()}):
        raise refusal("refuse.generate_alone", given=", ".join(unread))
    check_output(place.file, force=place.force)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.files import write_code
        from headwise.pages.generation import GenerationRequest, generated, show_generation

        result = generated(GenerationRequest(asked["text"], count, asked["model"], asked["cut"], lang), tell)
        write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    from rich.console import Console

    _write_any_sign()
    show_generation(result, Console())
    click.echo(visible(say("look.wrote", lang=lang, file=place.file)))


def _write_any_sign() -> None:
    """Let a terminal that cannot write a sign show ? in its place."""
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def given(options: Mapping[str, object]) -> list[str]:
    """The options that came with a value."""
    return [name for name, value in options.items() if value is not None]
