"""The slider of a page whose maps are of a generation, in the browser."""

import pytest

from headwise.pages.encoder_decoder import SOURCE, TARGET, TargetRequest, look_at_target
from headwise.pages.generation import GenerationRequest, generated
from headwise.pages.models import silent
from headwise.wording import ENGLISH
from tests.cli.test_encoder_decoder import KINDS as TARGET_KINDS
from tests.cli.test_generation import KINDS, LLAMA
from tests.cli.test_heads import predicting
from tests.pages.small_models import SENTENCE

pytestmark = pytest.mark.needs("transformers")


def test_the_page_has_a_slider_of_the_steps(tmp_path, open_page):
    folder = predicting(*KINDS["llama"][:1], tmp_path / "llama", **LLAMA)
    result = generated(GenerationRequest(SENTENCE, 4, folder), silent)
    page = open_page(result.page())
    first = result.steps[0]
    assert page.asked("window.headwise.shown()")["token"] == first.query
    assert page.asked("window.headwise.shown()")["view"] == "row"
    for n, step in enumerate(result.steps):
        page.tab.fill("#generation", str(n))
        assert page.asked("window.headwise.shown()")["token"] == step.query
        assert ENGLISH["page.generated.step"].format(step=n + 1, count=4) in page.text("#view")
        assert f"{step.text} with probability {step.probability:.3f}" in page.text(".facts")
    page.tab.focus("#generation")
    page.tab.keyboard.press("ArrowLeft")
    assert page.asked("window.headwise.shown()")["token"] == result.steps[2].query
    # a token of the prompt generated nothing
    page.tab.click(".text .piece >> nth=0")
    assert page.asked("document.querySelector('.facts').textContent").count("probability") == 0


def test_the_slider_of_a_target_moves_through_its_own_tokens_only(tmp_path, open_page):
    kind, sizes = TARGET_KINDS["bart"]
    folder = predicting(kind, tmp_path / "bart", **sizes)
    result = look_at_target(TargetRequest(SENTENCE, folder, "it was the tired animal"), silent)
    page = open_page(result.page())
    opened = page.asked("window.headwise.shown()")
    assert (opened["view"], opened["token"]) == ("row", 0)
    assert result.maps[opened["layer"]][2:] == (TARGET, SOURCE)
    page.tab.fill("#generation", "3")
    assert f"{result.steps[3].text} with probability" in page.text(".facts")
    # a row of the encoder is of the source, after which nothing comes
    page.tab.select_option("#layer", "0")
    assert result.maps[0][2:] == (SOURCE, SOURCE)
    assert "with probability" not in page.text(".facts")
