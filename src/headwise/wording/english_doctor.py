"""The sentences in English of the doctor: of each kind of finding, what it is, why it matters, and what mends it."""

KINDS: dict[str, tuple[str, str, str]] = {
    "scale-missing": (
        "The scores are not divided by the square root of the head width.",
        "Their variance grows with the head width, the softmax saturates and its gradients vanish.",
        "Multiply the scores by {wanted}, which is 1/√(head width), before the softmax.",
    ),
    "scale-wrong": (
        "The scores are multiplied by {factor} ({what}), and not by 1/√(head width) = {wanted}.",
        "The softmax is sharper or flatter than it should be, and that changes with the number of heads.",
        "Divide by the square root of the head width.",
    ),
    "scale-inverted": (
        "The scores are multiplied by {factor} where they should be divided.",
        "The softmax becomes an argmax: nearly all weight goes to one key.",
        "Divide by the square root of the head width.",
    ),
    "scale-floor-division": (
        "The scores are rounded down to whole numbers.",
        "Scores that differ become equal, and there is no derivative to train by.",
        "Divide with / instead of //.",
    ),
    "scale-after-softmax": (
        "The scale comes after the softmax.",
        "The weights no longer sum to 1, and the softmax still sees unscaled scores.",
        "Scale the scores before the softmax.",
    ),
    "scale-twice": (
        "The scores are scaled twice: by {factor} in all, where 1/√(head width) is {wanted}.",
        "The weights come out too even.",
        "Keep one of the two.",
    ),
    "softmax-axis": (
        "The softmax goes over another axis than the keys.",
        "The weights of a query do not sum to 1 over its keys.",
        "Take the softmax over the axis of the keys, dim={axis}.",
    ),
    "softmax-missing": (
        "The weights are the scores themselves: there is no softmax.",
        "Weights may be negative and do not sum to 1.",
        "Apply softmax over the axis of the keys, dim={axis}, before the weights meet the values.",
    ),
    "split-without-transpose": (
        "The heads are split by a view or reshape that mixes tokens and heads.",
        "The shape is right, but a head gets pieces of several tokens.",
        "Split the last axis into (heads, head width) first, and then transpose heads and tokens.",
    ),
    "merge-without-transpose": (
        "The heads are merged while the heads still stand before the tokens.",
        "The shape is right, but each token gets pieces of other tokens.",
        "Transpose heads and tokens back before the heads are merged.",
    ),
    "heads-batch-swapped": (
        "Samples and heads change places.",
        "One sample gets the heads of another.",
        "Keep the order of samples and heads: batch first, in the split and in the merge.",
    ),
    "heads-not-split": (
        "The heads are never split.",
        "There is one wide head, whatever the number of heads says.",
        "Split the width into (heads, head width) before the scores.",
    ),
    "key-not-transposed": (
        "The keys are not transposed for the product with the queries.",
        "Queries meet something else than whole keys.",
        "Use key.transpose(-2, -1).",
    ),
    "key-uses-query-length": (
        "Keys or values are given the length of the queries.",
        "It fails as soon as keys and queries differ in length, as in cross-attention.",
        "Take the length from the keys, or write -1.",
    ),
    "mask-inverted": (
        "The mask hides what should be seen, and shows what should be hidden.",
        "Padding and future tokens get all the weight: {leak} of it leaks.",
        "Turn the condition round.",
    ),
    "mask-after-softmax": (
        "The mask is applied after the softmax.",
        "Hidden keys still take their share: the weights of the others do not sum to 1.",
        "Fill the scores with -inf before the softmax.",
    ),
    "mask-weak-fill": (
        "Hidden keys keep a score that the softmax can still see.",
        "They get up to {leak} of the weight.",
        "Fill with -inf, or the least number of the dtype.",
    ),
    "mask-ignored": (
        "The mask changes nothing.",
        "Hidden keys get up to {leak} of the weight.",
        "Use the masked scores: masked_fill returns a new tensor.",
    ),
    "mask-broadcast": (
        "The mask lies over the scores in the wrong way.",
        "It hides other keys than it means.",
        "Give the mask the shape (batch, 1, 1 or queries, keys).",
    ),
    "mask-repeat-order": (
        "The mask is repeated in another order than the samples and heads it is for.",
        "A sample gets the mask of another.",
        "Use repeat_interleave where heads were merged into the batch.",
    ),
    "mask-axis": (
        "The mask of the keys lies along the queries.",
        "Whole queries are hidden, and hidden keys are seen.",
        "Give the mask the shape (batch, 1, 1, keys).",
    ),
    "mask-raises": (
        "A call with a mask fails.",
        "The mask cannot be used at all.",
        "Give the mask a shape that fits the scores.",
    ),
    "mask-nan": (
        "A query that may see nothing becomes NaN.",
        "One such row, as padding makes it, spoils the loss.",
        "Fill its weights with 0 after the softmax.",
    ),
    "causal-missing": (
        "A query sees keys that come after it.",
        "In training the answer is visible; in generation it is not there.",
        "Hide the keys whose position is greater than the query's.",
    ),
    "causal-offset": (
        "The causal mask is off by one.",
        "A query sees the token that it should predict, or not itself.",
        "Let position i see the keys 0 to i.",
    ),
    "causal-inverted": (
        "A query sees the keys after it and not those before.",
        "The model reads backwards.",
        "Hide the keys whose position is greater than the query's.",
    ),
    "causal-cache": (
        "With a cache, the causal mask starts at the wrong position.",
        "A decoding step sees too few of the keys.",
        "Count the positions of queries from the end of the cache.",
    ),
    "projection-shared": (
        "Two of the projections ({name}) are one: {near}.",
        "What is meant to be learned apart has the same weights.",
        "Give each its own projection.",
    ),
    "projection-missing": (
        "There is no output projection.",
        "The heads are never mixed.",
        "Add a linear layer behind the merge.",
    ),
    "projection-unused": (
        "The projection {name} is registered but never used.",
        "Its weights are never trained, and its part of the computation is missing.",
        "Call it, or remove it.",
    ),
    "parameters-unregistered": (
        "The weights in {name} are used but not registered.",
        "They are not trained, saved, or moved to a device.",
        "Keep modules in nn.ModuleList, and weights in nn.Parameter or nn.ParameterList.",
    ),
    "input-ignored": (
        "The argument {name} changes nothing: {was} is used in its place.",
        "With inputs that differ the result is that of another computation.",
        "Make the projection from {name}.",
    ),
    "dropout-in-eval": (
        "Dropout is active in eval mode.",
        "Two calls with the same input give different outputs.",
        "Pass training=self.training, or use nn.Dropout.",
    ),
    "dropout-before-softmax": (
        "Dropout is applied to the scores, before the softmax.",
        "A dropped score is 0 there, which is no small weight: hidden keys may come back.",
        "Drop weights after the softmax.",
    ),
    "rotary-wrong": (
        "The rotation of positions does not fit: scores depend on more than the distance.",
        "Relative positions are lost.",
        "Rotate queries and keys, and only these, with the same pairs and positions.",
    ),
    "groups-tiled": (
        "Key and value heads are laid out in turn, where each serves neighbouring query heads.",
        "Query heads read the keys of another group; weights from elsewhere do not fit.",
        "Use repeat_interleave on the axis of the heads.",
    ),
    "gradient-cut": (
        "The gradient stops here.",
        "These are never trained: {name}",
        "Keep the tensor in the graph: no detach, .data, no_grad, or change in place.",
    ),
    "batch-length-confused": (
        "Samples and tokens change places: the samples attend to each other.",
        "The result depends on what else is in the batch.",
        "Say which axis is the batch, as by batch_first=True.",
    ),
    "sample-leak": (
        "One sample changes the result of another.",
        "The result depends on what else is in the batch.",
        "Keep the batch axis apart in every operation.",
    ),
    "wrong-attribute": ("There is no attribute {name}.", "Every call fails here.", "Write {near}."),
    "undefined-name": ("The name {name} is not defined.", "Every call fails here.", "Define or import it."),
    "view-noncontiguous": (
        "A view is taken of a tensor whose entries do not lie in that order.",
        "Every call fails here.",
        "Call contiguous() before the view, or use reshape.",
    ),
    "raises": ("The call fails here.", "It has no result.", "See the error."),
    "unknown": (
        "What comes out of this step is not what follows from what goes in.",
        "The output is not that of attention.",
        "Compare this step with the formula.",
    ),
}

DOCTOR: dict[str, str] = {
    **{
        f"doctor.{kind}.{part}": text
        for kind, texts in KINDS.items()
        for part, text in zip(("what", "why", "fix"), texts, strict=True)
    },
    "doctor.help": "Say whether attention code is right; if not, where, why, and what mends it.",
    "doctor.help.target": "FILE:CLASS, FILE:function, NOTE.md:CLASS, BOOK.ipynb:CLASS or package.module:Class; the "
    "code is run, with limits but no sandbox: name only code that you would run.",
    "doctor.help.init": "How the class is built, such as '{{\"d_model\": \"H*d\", \"h\": \"H\"}}'; found out where it "
    "is left out.",
    "doctor.help.call": "How it is called, such as '{{\"x\": [\"B\", \"L\", \"D\"]}}'; found out where it is left out.",
    "doctor.help.json": "Print one JSON object and nothing else.",
    "doctor.help.fix": "Write NAME.fixed.py with what can be mended, and show the difference.",
    "doctor.verdict.sound": "{target}: sound",
    "doctor.verdict.faulty": "{target}: faulty",
    "doctor.verdict.not examined": "{target}: not examined",
    "doctor.severity.fault": "fault",
    "doctor.severity.warning": "warning",
    "doctor.severity.note": "note",
    "doctor.proved": "proved",
    "doctor.suspected": "suspected",
    "doctor.patch": "{fix} Write: {patch}",
    "doctor.evidence": "Output error {error} → 0 when this alone is put right, and all laws hold then.",
    "doctor.examined": "Examined: {tried}.",
    "doctor.examined_not": "Not examined: {tried}.",
    "doctor.unknown_call": "It is not known how to build or call it; say so with --init and --call. ({error})",
    "doctor.no_attention": "No softmax attention was found in what it does.",
    "doctor.no_fix": "Nothing was written: none of the findings can be mended by replacing text.",
    "step.examining": "examining {target}",
}  # fmt: skip
