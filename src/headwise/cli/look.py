"""headwise look: which words every head of a pretrained model links in a text, and the maps of code or of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from headwise.cli.definitions import list_attention
from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language, missing
from headwise.cli.output_file import OutputFile
from headwise.cli.progress import progress_bar
from headwise.cli.text_runs import given, show_text
from headwise.cli.trace import SECONDS, as_object, megabytes, positive
from headwise.pages.code_target import code_target
from headwise.pages.files import MAX_MB, SUFFIXES, check_output
from headwise.pages.requests import check_maps, places_to_ablate
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["look"]


@click.command(cls=WordedCommand, about="look.help", example='headwise look "The animal was tired." --query animal')
@click.argument("text", required=False, cls=WordedArgument, help="look.help.text")
@click.option(
    "--file", "file", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="look.help.file"
)
@click.option("--image", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="look.help.image")
@click.option("--audio", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="look.help.audio")
@click.option("--pair", metavar="TEXT2", cls=WordedOption, help="look.help.pair")
@click.option("--maps", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="look.help.maps")
@click.option("--model", metavar="NAME_OR_FOLDER", cls=WordedOption, help="look.help.model")
@click.option("--against", metavar="TEXT2", cls=WordedOption, help="look.help.against")
@click.option("--against-model", metavar="NAME_OR_FOLDER", cls=WordedOption, help="look.help.against_model")
@click.option("--ablate", metavar="L3H1", multiple=True, cls=WordedOption, help="look.help.ablate")
@click.option("--generate", metavar="N", type=int, callback=positive, cls=WordedOption, help="look.help.generate")
@click.option("--cut", is_flag=True, cls=WordedOption, help="look.help.cut")
@click.option("--query", metavar="WORD", cls=WordedOption, help="look.help.query")
@click.option("--layer", metavar="N", type=int, multiple=True, cls=WordedOption, help="look.help.layer")
@click.option("--head", metavar="N", type=int, multiple=True, cls=WordedOption, help="look.help.head")
@click.option("--sample", metavar="N", type=int, multiple=True, cls=WordedOption, help="look.help.sample")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption,
    help="look.help.output", fills={"suffixes": ", ".join(SUFFIXES)},
)  # fmt: skip
@click.option(
    "--max-mb", metavar="N", type=float, default=MAX_MB, callback=megabytes, cls=WordedOption, help="look.help.max_mb"
)
@click.option("--open", "opened", is_flag=True, cls=WordedOption, help="look.help.open")
@click.option("--init", metavar="JSON", cls=WordedOption, help="trace.help.init")
@click.option("--call", metavar="JSON", cls=WordedOption, help="trace.help.call")
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="look.help.json")
@click.option(
    "--seconds", metavar="N", type=int, callback=positive, cls=WordedOption, help="trace.help.seconds",
    fills={"seconds": str(SECONDS)},
)  # fmt: skip
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def look(
    ctx: click.Context,
    *,
    text: str | None,
    file: Path | None,
    image: Path | None,
    audio: Path | None,
    pair: str | None,
    maps: Path | None,
    model: str | None,
    against: str | None,
    against_model: str | None,
    ablate: tuple[str, ...],
    generate: int | None,
    cut: bool,
    query: str | None,
    layer: tuple[int, ...],
    head: tuple[int, ...],
    sample: tuple[int, ...],
    output: Path | None,
    max_mb: float,
    opened: bool,
    init: str | None,
    call: str | None,
    as_json: bool,
    seconds: int | None,
    force: bool,
) -> None:
    """Look at one text, at code, or at maps."""
    sources = given({"TEXT": text, "--file": file, "--image": image, "--audio": audio, "--maps": maps})
    if len(sources) != 1:
        raise refusal("refuse.one_source", given=", ".join(sources)) if sources else missing(ctx, "TEXT")
    lang, of_text = language(ctx), {
        "--pair": pair, "--model": model, "--against": against, "--against-model": against_model,
        "--ablate": ablate or None, "--generate": generate, "--cut": cut or None,
    }  # fmt: skip
    if text is not None and (target := code_target(text)) is not None:
        if unread := given({**of_text, "--query": query, "--sample": sample or None}):
            raise refusal("refuse.code_alone", target=target, given=", ".join(unread))
        request = {
            "init": as_object("--init", init), "call": as_object("--call", call), "layer": layer, "head": head,
            "seconds": seconds or SECONDS, "lang": lang,
        }  # fmt: skip
        page = OutputFile.named(output, max_mb, force) if output is not None or opened else None
        _show_code(target, request, page, lang, as_json=as_json)
        _open(page, is_asked=opened)
        return
    if unread := given({"--init": init, "--call": call, "--seconds": seconds}):
        raise refusal("refuse.no_code", given=", ".join(unread))
    place = OutputFile.named(output, max_mb, force) if output is not None or opened or not as_json else None
    if maps is not None:
        where = {"layer": layer, "head": head, "sample": sample}
        _show_maps(maps, query, where, given(of_text), place, lang, as_json=as_json)
    else:
        if sample:
            raise refusal("refuse.sample_of_text")
        asked = _read_options(of_text) | {"text": text if file is None else _text_of(file), "query": query}
        asked |= {"ablate": places_to_ablate(ablate), "cut": cut, "layers": layer, "heads": head, "lang": lang}
        show_text(asked | {"image": image, "audio": audio}, place, as_json=as_json)
    _open(place, is_asked=opened)


def _open(page: OutputFile | None, *, is_asked: bool) -> None:
    """Show a file that was written, in the program that opens such files."""
    if page is not None and is_asked:
        click.launch(page.file.resolve().as_uri())


def _read_options(options: Mapping[str, object]) -> dict[str, object]:
    """Options by the names of a request's fields."""
    return {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}


def _show_code(
    target: str, request: Mapping[str, object], place: OutputFile | None, lang: str, *, as_json: bool
) -> None:
    """Run user code, print its heads, and write the page where one is asked for."""
    from headwise.targets import check_name, parse, read

    list_attention("look", target, lang, as_json=as_json)
    # what is known without torch is refused before it is imported
    named = parse(target)
    check_name(named, read(named))
    if place is not None:
        check_output(place.file, force=place.force)
    with progress_bar(lang) as tell:
        from headwise.pages.files import write_code
        from headwise.pages.user_code import look_at_code, show_code

        tell("step.tracing", {"target": target})
        result = look_at_code(target, **request)  # type: ignore[arg-type]  # by their names
        if place is not None:
            write_code(result, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=1))
    else:
        from rich.console import Console

        show_code(result, Console())
    if place is not None:
        click.echo(visible(say("look.wrote", lang=lang, file=place.file)), err=as_json)


def _show_maps(
    maps: Path,
    query: str | None,
    chosen: Mapping[str, tuple[int, ...]],
    unread: Sequence[str],
    place: OutputFile | None,
    lang: str,
    *,
    as_json: bool,
) -> None:
    """Show the maps of a file. unread: options that are of texts only, and must not come."""
    if unread:
        raise refusal("refuse.maps_alone", given=", ".join(unread))
    if place is not None:
        check_output(place.file, force=place.force, of_maps=True)
    check_maps(maps, chosen["layer"], lang)
    with progress_bar(lang) as tell:
        from headwise.maps import load_maps
        from headwise.pages.files import write_page
        from headwise.pages.page_sources import page_of_maps

        tell("step.reading", {"file": maps})
        loaded = load_maps(maps)
        page = page_of_maps(loaded, tokens=None, query=query, layer=chosen["layer"], head=chosen["head"], lang=lang)
        if chosen["sample"]:
            page = page.of_samples(chosen["sample"])
        if place is not None:
            tell("step.writing", {"file": place.file})
            write_page(page, place.file, force=place.force, max_mb=place.max_mb, tell=tell)
    if as_json:
        shapes = {name: list(loaded_map.shape) for name, loaded_map in loaded.items()}
        click.echo(json.dumps({"schema": 1, "maps": shapes}, ensure_ascii=False, indent=1))
    for name, loaded_map in loaded.items() if not as_json else ():
        click.echo(visible(f"{name}  {tuple(loaded_map.shape)}"))
    if place is not None:
        click.echo(visible(say("look.wrote", lang=lang, file=place.file)), err=as_json)


def _text_of(file: Path) -> str:
    """The text of a file; a Refusal where it cannot be read as UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise refusal("refuse.no_text_file", file=file, reason=reason) from error
