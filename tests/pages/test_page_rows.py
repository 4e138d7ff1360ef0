"""What rows show beside weights, in the browser: the steps of a generation, and the picture under patches."""

import base64

import pytest
import torch

import headwise as hw
from headwise.pages.encoder_decoder import SOURCE, TARGET, TargetRequest, look_at_target
from headwise.pages.generation import GenerationRequest, generated
from headwise.pages.models import silent
from headwise.pages.number_tables import PatchedImage
from headwise.pages.png import png
from headwise.wording import ENGLISH
from tests.cli.test_encoder_decoder import KINDS as TARGET_KINDS
from tests.cli.test_generation import KINDS, LLAMA
from tests.cli.test_heads import predicting
from tests.pages.browsing import PHONE
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


@pytest.mark.parametrize("size", [PHONE, (1200, 900)])
def test_a_patch_of_a_picture_is_chosen_by_a_click(open_page, size):
    import dataclasses

    torch.manual_seed(2)
    attn = hw.MultiHeadAttention(12, 3)
    with hw.watch(attn) as seen:
        attn(torch.randn(1, 1 + 2 * 4, 12))
    red = base64.b64encode(png([[0] * 8] * 4, [(200, 0, 0)])).decode("ascii")
    picture = PatchedImage(f"data:image/png;base64,{red}", 2, 4, 1)
    page = open_page(dataclasses.replace(hw.look(seen), picture=picture), size=size, place="#view=row&token=0&head=2")
    box = page.tab.locator("#picture").bounding_box()
    assert box["width"] == pytest.approx(2 * box["height"], abs=2)
    assert box["width"] <= size[0]
    page.tab.click("#picture", position={"x": box["width"] * 0.6, "y": box["height"] * 0.9})
    # the second row's third patch, after one special token
    assert page.asked("window.headwise.shown().token") == 1 + 4 + 2
    assert page.asked("document.getElementById('picture').getAttribute('aria-label')") == page.text("h2:not([hidden])")
    # the patch that the row attends to most is as bright as the picture, others are darker
    weights = seen[""][0, 2, 7, 1:]
    reds = page.asked("""(() => {
        const { width, height } = document.getElementById('picture');
        const { data } = document.getElementById('picture').getContext('2d').getImageData(0, 0, width, height);
        const row = (n) => Math.floor((Math.floor(n / 4) + 0.5) / 2 * height);
        const at = (n) => row(n) * width + Math.floor(((n % 4) + 0.5) / 4 * width);
        return [0, 1, 2, 3, 4, 5, 6, 7].map((n) => data[4 * at(n)]);
    })()""")
    assert reds[int(weights.argmax())] == 200
    order = sorted(range(8), key=lambda n: float(weights[n]))
    assert [reds[n] for n in order] == sorted(reds)
    assert page.errors == []
