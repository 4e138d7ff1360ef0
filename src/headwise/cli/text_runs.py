"""Text runs: a model runs on a text, and what that shows is printed and written: links, or steps of a target."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from headwise.cli.output_file import OutputFile
from headwise.cli.progress import progress_bar
from headwise.pages.files import check_output
from headwise.wording import refusal, say
from headwise.wording.screen import visible

if TYPE_CHECKING:
    from headwise.pages.encoder_decoder import EncoderDecoderLook
    from headwise.pages.models import Progress

__all__ = ["given", "show_text"]


def show_text(asked: dict[str, Any], place: OutputFile | None, *, as_json: bool = False) -> None:
    """Run a model on a text, print what its heads link, or what it generates, and write the page.

    place: None: no page is written. as_json: one JSON object is printed.
    """
    count, image, audio, lang = asked.pop("generate"), asked.pop("image"), asked.pop("audio"), asked["lang"]
    if image is not None:
        _show_image(image, asked | {"generate": count}, place, as_json=as_json)
        return
    if audio is not None:
        _show_speech(audio, asked, count, place, as_json=as_json)
        return
    if asked["model"] is not None and (count is not None or asked["pair"] is not None):
        from headwise.pages.models import has_decoder

        if has_decoder(asked["model"]):
            _show_target(asked, count, place, as_json=as_json)
            return
    if count is not None:
        _show_generation(asked, count, place, as_json=as_json)
        return
    with progress_bar(lang) as tell:
        from headwise.pages.files import write
        from headwise.pages.text_look import TextRequest, looked

        _check(place)
        result = looked(TextRequest(**asked), tell)
        if place is not None:
            tell("step.writing", {"file": place.file})
            result = write(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    from rich.console import Console

    from headwise.pages.terminal import show

    # what it prints says by itself where the page is
    _tell(result, None if not as_json else place, lang, as_json=as_json, show=lambda: show(result, Console()))


# what a run that is shown by its steps has no use for
STEPS_LEAVE = {
    "--query": "query", "--against": "against", "--against-model": "against_model", "--ablate": "ablate",
    "--layer": "layers", "--head": "heads",
}  # fmt: skip


def _show_image(image: Path, asked: Mapping[str, Any], place: OutputFile | None, *, as_json: bool) -> None:
    """Run a vision model on an image, say what it is and write the page."""
    options = {"--pair": "pair", "--cut": "cut", "--generate": "generate", **STEPS_LEAVE}
    if unread := given({option: asked[name] or None for option, name in options.items()}):
        raise refusal("refuse.image_alone", given=", ".join(unread))
    if asked["model"] is None:
        raise refusal("refuse.image_model")
    _check(place)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.files import write_code
        from headwise.pages.image_look import ImageRequest, look_at_image

        result = look_at_image(ImageRequest(image, asked["model"], lang), tell)
        if place is not None:
            write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    _tell(result, place, lang, as_json=as_json, show=lambda: click.echo(visible(str(result))))


def _show_speech(
    audio: Path, asked: Mapping[str, Any], count: int | None, place: OutputFile | None, *, as_json: bool
) -> None:
    """Run a speech model on a sound, print what each token of its target attends to and write the page."""
    if unread := given({option: asked[name] or None for option, name in {"--cut": "cut", **STEPS_LEAVE}.items()}):
        raise refusal("refuse.audio_alone", given=", ".join(unread))
    if asked["model"] is None:
        raise refusal("refuse.audio_model")
    if count is not None and asked["pair"] is not None:
        raise refusal("refuse.one_target")
    _check(place)
    with progress_bar(asked["lang"]) as tell:
        from headwise.pages.speech_look import SpeechRequest, look_at_speech

        result = look_at_speech(SpeechRequest(audio, asked["model"], asked["pair"], count, asked["lang"]), tell)
        _write_target(result, place, tell)
    _tell_target(result, place, as_json=as_json)


def _show_target(asked: Mapping[str, Any], count: int | None, place: OutputFile | None, *, as_json: bool) -> None:
    """Run an encoder with a decoder, print what each token of its target attends to and write the page."""
    if unread := given({option: asked[name] or None for option, name in STEPS_LEAVE.items()}):
        raise refusal("refuse.target_alone", given=", ".join(unread))
    if count is not None and asked["pair"] is not None:
        raise refusal("refuse.one_target")
    _check(place)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.encoder_decoder import TargetRequest, look_at_target

        request = TargetRequest(asked["text"], asked["model"], asked["pair"], count, asked["cut"], lang)
        result = look_at_target(request, tell)
        _write_target(result, place, tell)
    _tell_target(result, place, as_json=as_json)


def _write_target(result: EncoderDecoderLook, place: OutputFile | None, tell: Progress) -> None:
    if place is not None:
        from headwise.pages.files import write_code

        write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)


def _tell_target(result: EncoderDecoderLook, place: OutputFile | None, *, as_json: bool) -> None:
    from rich.console import Console

    from headwise.pages.encoder_decoder import show_target

    _tell(result, place, result.lang, as_json=as_json, show=lambda: show_target(result, Console()))


def _show_generation(asked: Mapping[str, Any], count: int, place: OutputFile | None, *, as_json: bool) -> None:
    """Let a model generate, print its steps and write the page."""
    options = {"--pair": "pair", **STEPS_LEAVE}
    if unread := given({option: asked[name] or None for option, name in options.items()}):
        raise refusal("refuse.generate_alone", given=", ".join(unread))
    _check(place)
    lang = asked["lang"]
    with progress_bar(lang) as tell:
        from headwise.pages.files import write_code
        from headwise.pages.generation import GenerationRequest, generated, show_generation

        result = generated(GenerationRequest(asked["text"], count, asked["model"], asked["cut"], lang), tell)
        if place is not None:
            write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    from rich.console import Console

    _tell(result, place, lang, as_json=as_json, show=lambda: show_generation(result, Console()))


class Told(Protocol):
    """What a run gives."""

    def to_dict(self) -> dict[str, Any]:
        """It as plain data."""


def _check(place: OutputFile | None) -> None:
    if place is not None:
        check_output(place.file, force=place.force)


def _tell(result: Told, place: OutputFile | None, lang: str, *, as_json: bool, show: Callable[[], object]) -> None:
    """Print a result, and where its page is."""
    _write_any_sign()
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    else:
        show()
    if place is not None:
        click.echo(visible(say("look.wrote", lang=lang, file=place.file)), err=as_json)


def _write_any_sign() -> None:
    """Let a terminal that cannot write a sign show ? in its place."""
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def given(options: Mapping[str, object]) -> list[str]:
    """The options that came with a value."""
    return [name for name, value in options.items() if value is not None]
