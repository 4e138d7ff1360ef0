"""The sentences in English of the steps of user code: what each kind of operation is, and the command steps."""

STEPS: dict[str, str] = {
    "steps.kind.project": "Project",
    "steps.says.project": "A linear layer: the features of each token are mixed by learned weights.",
    "steps.kind.split": "Split into heads",
    "steps.says.split": "The features of each token become pieces, one for each head. No number changes; colours "
    "follow the heads.",
    "steps.kind.turn": "Reorder the axes",
    "steps.says.turn": "Axes are swapped. No number changes, and each keeps its token and its head.",
    "steps.kind.scores": "Scores",
    "steps.says.scores": "Every query is multiplied with every key: one number for each pair.",
    "steps.kind.scale": "Scale",
    "steps.says.scale": "All are multiplied or divided by one number. Attention divides scores by √d, lest the "
    "softmax become too sharp.",
    "steps.kind.mask": "Mask",
    "steps.says.mask": "A pair that may not attend gets a number so low that the softmax makes it 0.",
    "steps.kind.bias": "Add to the scores",
    "steps.says.mask_weights": "Weights of pairs that may not attend are replaced after the softmax: what is left of a "
    "row need not sum to 1.",
    "steps.says.bias": "Something is added to the score of each pair, such as a bias for its distance.",
    "steps.kind.softmax": "Softmax",
    "steps.says.softmax": "Along one axis numbers become weights that sum to 1; −∞ becomes exactly 0.",
    "steps.kind.dropout": "Dropout",
    "steps.says.dropout": "In training it sets numbers to 0 at random. The code runs in eval mode here, where a "
    "dropout layer changes nothing.",
    "steps.kind.mix": "Weighted sum",
    "steps.says.mix": "Each query gets the sum of the values, each times its weight.",
    "steps.kind.merge": "Merge the heads",
    "steps.says.merge": "The pieces that the heads made of a token stand side by side again.",
    "steps.kind.mixed": "Mixed up",
    "steps.says.mixed": "The sizes are legal, but entries of several axes are mixed up: the colours show of which "
    "head each number is.",
    "steps.kind.project_out": "Project the output",
    "steps.says.project_out": "A linear layer mixes the outputs of the heads.",
    "steps.kind.attention": "Attention in one call",
    "steps.says.attention": "PyTorch computes scores, softmax and weighted sum inside: only what goes in and what "
    "comes out is seen.",
    "steps.kind.fold": "Fold the heads into the batch",
    "steps.says.fold": "Each head of each batch element becomes a batch element of its own.",
    "steps.kind.unfold": "Take the heads out of the batch",
    "steps.says.unfold": "The batch and the heads become two axes again.",
    "steps.kind.part": "Take a part",
    "steps.says.part": "Some of the numbers are taken out. None changes.",
    "steps.kind.copy": "Repeat",
    "steps.says.copy": "Numbers are repeated along an axis. None changes.",
    "steps.kind.join": "Join",
    "steps.says.join": "Tensors are put side by side.",
    "steps.kind.reshape": "Reshape",
    "steps.says.reshape": "The same numbers in the same order get other axes.",
    "steps.kind.norm": "Normalise",
    "steps.says.norm": "Features are brought to one scale.",
    "steps.kind.embed": "Look up",
    "steps.says.embed": "Each number picks a row of a table.",
    "steps.kind.product": "Multiply",
    "steps.says.product": "A product of matrices.",
    "steps.title": "{target}, every operation of one run with {sizes}. The code's own numbers, with random weights "
    "and inputs.",
    "steps.crossed": "It fails where keys differ from queries in length, so both are of one length here.",
    "steps.fails": "After the last step it fails: {error}",
    "steps.turns": "A loop ran {turns} times: its first {shown} turns are shown, and {left} are left out.",
    "steps.more": "{count} more steps are left out.",
    "steps.mixed_axis": "{axes} mixed up",
    "steps.of_example": "Steps of attention",
    # the command
    "steps.help": "Show each step of attention code on its own lines, with small numbers, as one page.",
    "steps.help.target": "FILE.py:CLASS, FILE.py:function, NOTE.md:CLASS, BOOK.ipynb:CLASS or package.module:CLASS; "
    "the code is run, in a process of its own, but in no sandbox.",
    "steps.help.example": "Show headwise's own worked example instead of a target.",
    "steps.help.output": "The page to write, .html; steps.html where it is left out.",
    "refuse.page_suffix": "A page must end in .html, but {file} came: give such a name.",
    "refuse.steps_target": "{option} says how a target is built and called, but no TARGET came: give one, such as "
    "attention.py:MultiHeadAttention.",
    "refuse.steps_both": "Either TARGET or --example must be given, but --example came with {target}: leave one out.",
    "refuse.steps_failed": "At least one operation must run, but {target} failed at the first ({error}): fix it, or "
    "say how it is called with --call.",
    "refuse.steps_none": "At least one operation must stand in the code that is named, but {target} runs none of its "
    "own: name what computes attention.",
}
