"""The sentences in English of the doctor: its help, verdicts, evidence, and why there is no verdict."""

DOCTOR: dict[str, str] = {
    "doctor.help": "Say whether attention code is right; if not, where, why, and what mends it.",
    "doctor.help.ends": "Exit status: 0 sound, 1 faulty, 2 bad input, 3 not examined.",
    "doctor.help.target": "FILE:CLASS, FILE:function, NOTE.md:CLASS, BOOK.ipynb:CLASS or package.module:Class; the "
    "code is run, with limits but no sandbox: name only code that you would run.",
    "doctor.help.init": 'How the class is built, such as \'{{"d_model": "H*d", "h": "H"}}\'; found out where '
    "it is left out.",
    "doctor.help.call": 'How it is called, such as \'{{"x": ["B", "L", "D"]}}\'; found out where it is left out.',
    "doctor.help.json": "Print one JSON object and nothing else.",
    "doctor.help.fix": "Write NAME.fixed.py (also of a note or a notebook) with what can be mended; show what differs.",
    "doctor.verdict.sound": "{target}: sound",
    "doctor.verdict.faulty": "{target}: faulty",
    "doctor.verdict.not_examined": "{target}: not examined",
    "doctor.proved": "proved",
    "doctor.suspected": "suspected",
    "doctor.patch_gone": "{fix} Take out: {patch}",
    "doctor.patch": "{fix} Write: {patch}",
    "doctor.evidence.ideal": "Output error {error} → {after} when this is put right.",
    "doctor.evidence.laws": "The output changes by {error} when this is put right, and the check passes again; "
    "there is no formula to compare this output with.",
    "doctor.evidence.law": "When this is put right the check passes again; the output of this call stays what it is.",
    "doctor.evidence.raised_ideal": "{error} → output error {after} when this is put right.",
    "doctor.evidence.raised_laws": "{error} → it runs when this is put right, and the checks pass.",
    "doctor.evidence.samples": "With other numbers in one sample the output of another sample changes.",
    "doctor.evidence.padded": "Tokens of a padded sample are off by {error} from what they give without the padding.",
    "doctor.evidence.hidden": "With other numbers in the tokens that the mask hides the output changes by {error}.",
    "doctor.evidence.trimmed": "Without the padding at the end the output changes by {error}.",
    "doctor.evidence.stepped": "Token by token the output differs by {error} from that of all tokens at once.",
    "doctor.evidence.blocks": "With smaller blocks of keys the output differs by {error}.",
    "doctor.evidence.retrained": "Evaluated, trained further and evaluated again, the output differs by {error} from "
    "that of another module with the same state_dict().",
    "doctor.evidence.switched": "After one more eval() the output differs by {error}.",
    "doctor.evidence.single": "With one sample: {error}.",
    "doctor.evidence.forgotten": "Second output off by {error} → 0 when what the first call left in the module is "
    "taken away.",
    "doctor.evidence.replaced": "Output error {error} → 0 when this is put right.",
    "doctor.evidence.supplied": "{error} → it runs when the name is supplied.",
    "doctor.evidence.endless": "∞ (NaN or another shape)",
    "doctor.evidence.source": "The mended source was loaded and examined again: this is gone, and nothing new has "
    "come.",
    "doctor.evidence.runs": "The mended source was loaded and examined again: the call runs.",
    "doctor.said_call": "With {said} as given it cannot be built or called ({error}). Sizes may be symbols, as in "
    "--init '{init}' --call '{call}' (H heads of width d); in Python init= and call=.",
    "doctor.unknown_call": "It is not known how to build or call it ({error}). Say so with --init and --call, as in "
    "--init '{init}' --call '{call}' (H heads of width d); in Python init= and call=.",
    "doctor.no_attention": "No attention of tokens to tokens was found in it. Scores that are made in another way "
    "are not examined. Where one stands behind an option, turn that on with --init (in Python "
    "init=); where another class holds it, name that class.",
    "doctor.mixes.state": "Line {line} sums products of features over tokens to a state that every query reads, as in "
    "linear attention. It was not found that its weights sum to 1, so that they are not examined; headwise trace shows "
    "its axes.",
    "doctor.mixes.features": "The softmax of line {line} is of products that are summed over tokens: features attend "
    "to features, as in attention over channels, and tokens do not attend to tokens. Nothing in its file says that "
    "channels are meant, or its weights do not sum to 1, so that it is not examined. Where tokens were meant, make q "
    "and k (..., tokens, features) before their product; headwise trace shows their axes.",
    "doctor.mixes.pooling": "The softmax of line {line} gives each token one weight, the same for every query: tokens "
    "are pooled. No sum over tokens by these weights was found whose weights sum to 1, so that they are not examined; "
    "headwise trace shows its axes.",
    "doctor.of_torch": "This is torch's own code, which runs as one step and is not examined. Name a class or a "
    "function that calls it: how it is called is examined (what is handed to it, the order of its axes, its masks).",
    "doctor.not_whole": "A check without which there is no verdict failed or came too late: what was not examined "
    "says which, and where.",
    "doctor.no_order": "With the order of axes and the sizes that were tried, queries, keys and values do not come "
    "together. Say with --call how it is meant, where this was tried: --call '{call}' (in Python call=). What was not "
    "examined says at which line.",
    "doctor.no_numbers": "Its parameters are on the meta device, where they hold no numbers: build it on the CPU.",
    "doctor.no_fix": "Nothing was written: no patch was found.",
    "doctor.unfixed": "Not mended there, by kind (and line): {faults}.",
    "step.examining": "examining {target}",
}
