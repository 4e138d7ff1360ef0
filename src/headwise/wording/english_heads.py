"""The sentences in English of the commands heads and effects, and of what look compares."""

HEADS: dict[str, str] = {
    "heads.help": "Say what each head of a pretrained model does in TEXT, by published measures with their scores.",
    "heads.help.text": "The sentence that the model reads, between quotes.",
    "heads.help.least": "The score from which a pattern names a head (0.5).",
    "heads.help.json": "Print one JSON object instead.",
    "heads.title": "{model}: {layers} layers, {heads} heads, {tokens} tokens; a pattern names a head from {least} on",
    "heads.column.head": "head",
    "heads.column.does": "does",
    "heads.column.score": "score",
    "heads.column.chance": "by chance",
    "heads.column.entropy": "entropy",
    "heads.column.distance": "distance",
    "heads.key": "score: mean weight on such keys; by chance: that of equal weights; entropy: 1 is equal weights; "
    "distance in tokens; in brackets, the strongest pattern of a head that no pattern names.",
    "heads.left_out": "{name} is left out: {reason}",
    "heads.pattern.previous": "previous token",
    "heads.pattern.next": "next token",
    "heads.pattern.same": "same token",
    "heads.pattern.first": "first token",
    "heads.pattern.separator": "separators",
    "heads.pattern.duplicate": "duplicate token",
    "heads.pattern.induction": "induction",
    "heads.pattern.broad": "broad",
    "effects.help": "Change each head of a pretrained model and see what that does to its output on TEXT.",
    "effects.help.predict": "The metric: the logarithm of the probability of this word, next after TEXT, or at its one "
    "mask token.",
    "effects.help.similar": "The metric: the cosine similarity of TEXT and this text, by the mean of their tokens.",
    "effects.help.by": "What a head gives in its change: zeros (zero), or its mean over the text (mean).",
    "effects.help.estimate": "Only estimate all effects, by one backward pass.",
    "effects.help.top": "How many heads to print, those of the largest effect (10).",
    "effects.help.output": "Also write the page with the view Effects, as .html, or its figure as .png, .svg or .pdf.",
    "effects.title.similar": "{model}: the cosine similarity is {base}; each of {heads} heads changed, by {by}",
    "effects.title.predict": "{model}: log P({word}) is {base}; each of {heads} heads changed, by {by}",
    "effects.metric.similar": "the cosine similarity to “{text}”",
    "effects.metric.predict": "the log probability of “{word}”",
    "effects.column.measured": "measured",
    "effects.column.estimated": "estimated",
    "effects.key": "measured: the metric with the head changed, less the metric without; estimated: the same to first "
    "order, by one backward pass (attribution patching).",
    "compare.title": "How the heads differ from those of the second run, {count} of {first} and {second} tokens "
    "compared",
    "compare.column.divergence": "divergence",
    "compare.column.entropy": "entropy",
    "compare.column.received": "received",
    "compare.key": "divergence of rows: Jensen-Shannon, in nats, 0 to 0.69; change of entropy, in nats; received: "
    "total variation of what keys receive, 0 to 1. The first run is TEXT as it is.",
    "look.help.against": "Compare with the model's run on this text: the view Compare.",
    "look.help.against_model": "Compare with the run of this model, by name or folder: the view Compare.",
    "look.help.ablate": "Compare with a run in which this head gives zeros, as L3H1 (may be repeated).",
    "look.help.generate": "Let a causal model go on for so many tokens, and show each step: its token and its weights.",
    "generate.title": "{model} goes on: {text}",
    "generate.column.token": "token",
    "generate.column.probability": "probability",
    "generate.column.links": "the query before it attends most to",
    "generate.key": "Each token is the most probable one. L3H1 = layer 3, head 1, both counted from 0; the weight is "
    "the largest of all layers and heads.",
    "target.title": "{model}: {text} → {target} (the decoder)",
    "target.column.links": "the token before it attends most to, in the source",
    "target.key": "L3H1 = layer 3, head 1, both counted from 0, over the layers of encoder and decoder; the weight is "
    "the largest of all cross-attention.",
    "target.lengths": "the lengths of its source are {lengths}",
    "target.tokens": "so many tokens: {count}",
    "target.whole": "its target",
    "refuse.generation_fails": "The model {model} must generate {tokens}, but did not ({reason}): ask for fewer with "
    "--generate, or shorten the source.",
    "refuse.pair_fails": "The model {model} must run on a source of {source} tokens and a target of {target}, but did "
    "not ({reason}): shorten the longer one, or give a model whose inputs its tokenizer makes.",
    "look.help.image": "Show a vision model on this image, with the picture under its patches; needs --model.",
    "image.title": "{model} sees {image}: {layers} layers, {heads} heads, {rows} x {columns} patches, special tokens: "
    "{special}",
    "refuse.no_image": "The image must be a file that can be read, but {file} is none ({reason}): give a PNG "
    "or a JPEG.",
    "refuse.image_model": "An image is seen by a vision model, and none came: name one with --model.",
    "refuse.image_alone": "--image is seen by a vision model alone, but {given} came: leave it out.",
    "refuse.no_vision": "The model {model} ({model_type}) must see images by patches, and does not: give a vision "
    "model such as ViT.",
    "look.help.audio": "Show a speech model (Whisper) on this WAV file, with its target: --pair, or what the model "
    "writes; needs --model.",
    "refuse.no_sound": "The sound must be a WAV file of integers (PCM), but {file} is none ({reason}): convert it, as "
    "by ffmpeg -i FILE out.wav.",
    "refuse.sampling_rate": "The model {model} takes {wanted} samples a second, but {file} has {got}: convert it, as "
    "by ffmpeg -i FILE -ar {wanted} out.wav.",
    "look.no_samples": "it holds no whole sample",
    "refuse.long_sound": "The model {model} takes at most {most} seconds of sound, but {file} has {got}: cut it, as by "
    "ffmpeg -i FILE -t {most} out.wav.",
    "refuse.no_features": "A speech model must read input_features, as Whisper does, but {model} ({model_type}) reads "
    "{names}: give one such as Whisper.",
    "refuse.extractor": "The model {model} must make features of the sound, but could not of the {got} samples of "
    "{file} ({reason}): give another sound.",
    "refuse.speech_fails": "The model {model} must run on the sound and a target of {target} tokens, but did not "
    "({reason}): shorten the target, or give the feature extractor that belongs to the model.",
    "refuse.no_speech": "The model {model} ({model_type}) must be an encoder with a decoder that writes what it hears, "
    "and is none: give one such as Whisper.",
    "refuse.audio_model": "A sound is heard by a speech model, and none came: name one with --model.",
    "refuse.audio_alone": "--audio is heard by a speech model alone, but {given} came: leave it out.",
    "refuse.no_generation": "The model {model} must be causal to generate, and is not: give a causal language model "
    "with --model.",
    "refuse.generate_alone": "--generate shows the steps of one text, but {given} came: leave it out.",
    "refuse.target_alone": "An encoder with a decoder is shown by the tokens of its target, but {given} came: leave it "
    "out.",
    "refuse.one_target": "The decoder reads --pair TEXT2 or what --generate N makes, but both came: give one of them.",
    "refuse.ablate": "A head to ablate must be written like L3H1, layer and head from 0, but {got} came: write it so.",
    "refuse.no_metric": "effects needs one metric, and none came: give --predict WORD or --similar TEXT2.",
    "refuse.one_metric": "effects needs one metric, --predict WORD or --similar TEXT2, and got {given}: give one of "
    "them.",
    "refuse.no_predictions": "The model {model} ({architecture}) must predict tokens, but has no head for that: give a "
    "causal or masked language model with --model; effects takes any model with --similar TEXT2.",
    "refuse.word_tokens": "The word to predict must be one token of {model}, but {word} is {count}: {tokens}.",
    "refuse.one_mask": "A masked language model predicts at its mask token, {mask}, which must stand once in TEXT, but "
    "it stands {count} times: write it where the word is missing.",
    "refuse.other_layers": "The two models must have as many layers and heads, but {first} has {heads} and {second} "
    "{others}: compare models of one kind.",
}
