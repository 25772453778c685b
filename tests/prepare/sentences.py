"""Sentences of random words, equal to AutoModel's mock.build_unpacked_dataset (Python's random module)."""

import random

LABELS_ARE_INPUTS = 4
EOS, FIRST_WORD = 1, 2


def plan(arguments, tools):
    words, most = range(FIRST_WORD, arguments["vocab_size"]), arguments["max_sentence_len"]
    if not words:
        raise tools.fault("holds no word: 0 and 1 are the fill and the end", "vocab_size")
    numbers = random.Random(arguments["seed"])

    def sentences():
        for _ in range(arguments["num_sentences"]):
            length = max(1, min(most, int(numbers.gauss(arguments["mean_len"], arguments["std_len"]))))
            yield [numbers.choices(words, k=length) + [EOS]]

    tools.flags = LABELS_ARE_INPUTS
    tools.generate(sentences(), vocabulary=arguments["vocab_size"], eos=EOS, pad=0)
    return lambda rows: [(ids, [(0, len(ids))]) for ids in rows]
