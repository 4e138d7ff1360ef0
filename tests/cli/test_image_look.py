"""Image look: maps of vision models against their eager weights, the picture that they saw, and what is refused."""

import base64
import io
import json

import pytest
import torch

from headwise.pages.image_look import ImageRequest, look_at_image
from headwise.pages.models import silent
from headwise.wording import CHINESE, ENGLISH

pytestmark = pytest.mark.needs("transformers", "matplotlib")
BLOCK = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
# rows and columns of patches, special tokens
SIZES = {"vit": (6, 6, 1), "clip": (3, 3, 1), "deit": (4, 4, 2)}


def loud(model):
    torch.manual_seed(3)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    import transformers as t

    folder = tmp_path_factory.mktemp("vision")
    vision = {**BLOCK, "image_size": 48}
    models = {
        "vit": t.ViTModel(t.ViTConfig(**vision, patch_size=8)),
        "clip": t.CLIPModel(
            t.CLIPConfig(
                text_config={**BLOCK, "vocab_size": 53}, vision_config={**vision, "patch_size": 16}, projection_dim=19
            )
        ),
        "deit": t.DeiTModel(t.DeiTConfig(**vision, patch_size=12)),
    }
    for name, model in models.items():
        loud(model).save_pretrained(folder / name)
        size = {"height": 48, "width": 48}
        if name == "clip":
            processor = t.CLIPImageProcessor(size={"shortest_edge": 48}, crop_size=size)
        else:
            processor = t.ViTImageProcessor(size=size)
        processor.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    from PIL import Image

    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(0, 256, (64, 96, 3), generator=generator, dtype=torch.uint8)
    file = tmp_path_factory.mktemp("images") / "noise.png"
    Image.frombytes("RGB", (96, 64), bytes(pixels.flatten().tolist())).save(file)
    return file


@pytest.mark.parametrize("name", SIZES)
def test_maps_are_those_of_the_eager_model_and_patches_lie_in_the_picture(folders, image, name):
    import transformers as t
    from PIL import Image

    result = look_at_image(ImageRequest(image, folders / name), silent)
    kind = t.CLIPVisionModel if name == "clip" else t.AutoModel
    model = kind.from_pretrained(folders / name, attn_implementation="eager").eval()
    processor = t.AutoImageProcessor.from_pretrained(folders / name)
    pixels = processor(images=Image.open(image), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        wanted = model(pixel_values=pixels, output_attentions=True).attentions
    assert len(result.maps) == len(wanted) == 2
    for (_, m), weights in zip(result.maps, wanted, strict=True):
        torch.testing.assert_close(m.dense(), weights, rtol=0, atol=2e-5)
    rows, columns, special = SIZES[name]
    picture = result.picture
    assert (picture.rows, picture.columns, picture.first) == (rows, columns, special)
    assert len(result.tokens) == rows * columns + special == result.maps[0][1].shape[3]
    assert result.tokens[special + columns] == "1,0"
    shown = Image.open(io.BytesIO(base64.b64decode(picture.data.partition(",")[2])))
    assert shown.size == (48, 48)
    # what was normalised is the picture's pixels, to a 255th
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (processor.image_mean, processor.image_std))
    colours = torch.tensor(list(shown.tobytes())).view(48, 48, 3).permute(2, 0, 1) / 255
    torch.testing.assert_close(colours, (pixels[0] * std + mean).clamp(0, 1), rtol=0, atol=0.51 / 255)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_command_says_and_writes_it(headwise, folders, image, tmp_path, lang):
    page = tmp_path / "i.html"
    done = headwise("look", "--image", image, "--model", folders / "vit", "-o", page, "--lang", lang)
    assert (done.exit_code, done.stderr) == (0, "")
    title = {"en": ENGLISH, "zh": CHINESE}[lang]["image.title"]
    wanted = title.format(model="vit", image="noise.png", layers=2, heads=8, rows=6, columns=6, special=1)
    assert wanted in done.stdout
    assert '"picture":{"data":"data:image/png;base64,' in page.read_text(encoding="utf-8")
    done = headwise("look", "--image", image, "--model", folders / "vit", "-o", tmp_path / "i.json")
    assert json.loads((tmp_path / "i.json").read_text(encoding="utf-8"))["patches"] == [6, 6]


def test_what_cannot_be_seen_is_refused(headwise, folders, image, bert_folder, tmp_path):
    for command, sentence in (
        (("--image", image), "An image is seen by a vision model, and none came"),
        (("--image", image, "--model", bert_folder), r"small-bert (bert) must see images by patches"),
        (("--image", __file__, "--model", folders / "vit"), "The image must be a file that can be read, but"),
        (("--image", tmp_path / "none.png", "--model", folders / "vit"), "none.png is none (FileNotFoundError"),
        (("--image", image, "--model", folders / "vit", "--query", "it", "--head", 1), "but --query, --head came"),
        (("a text", "--image", image), "Exactly one of TEXT, --file, --image, --audio and --maps"),
    ):
        done = headwise("look", *command)
        assert (done.exit_code, done.stdout) == (2, "")
        assert sentence in done.stderr
