"""From texts to token ids and the runs of them that are trained on."""


def runs(mask):
    """[begin, end) of the ones in a list of 0 and 1."""
    out, at, size = [], 0, len(mask)
    while True:
        try:
            begin = mask.index(1, at)
        except ValueError:
            return out
        try:
            at = mask.index(0, begin)
        except ValueError:
            return out + [(begin, size)]
        out.append((begin, at))


def prompt_and_answer(tokenizer, pairs, limit=None, answer_only=True, exact=False):
    """Samples of (prompt, answer): trained on behind as many tokens as the prompt has when it is tokenized alone.

    AutoModel's count: without what the post-processor adds, but with the BOS that `add_bos_token: true` adds. With
    `exact` a token is trained on where it holds a character of the answer."""
    encodings = tokenizer.encode([prompt + answer for prompt, answer in pairs], limit=limit, offsets=exact)
    if exact and answer_only:
        return [(encoding.ids, answer_runs(encoding, len(prompt))) for encoding, (prompt, _) in zip(encodings, pairs)]
    full = [encoding.ids for encoding in encodings]
    if not answer_only:
        return [(ids, [(0, len(ids))] if ids else []) for ids in full]
    prompts = tokenizer.encode([prompt for prompt, _ in pairs], special=False)
    samples, bos = [], int(tokenizer.adds_bos)
    for ids, prompt in zip(full, prompts):
        begin = len(prompt) + bos
        samples.append((ids, [(begin, len(ids))] if begin < len(ids) else []))
    return samples


def answer_runs(encoding, begin):
    mask = [int(end > begin and end > first and not special)
            for (first, end), special in zip(encoding.offsets, encoding.special_tokens_mask)]
    return runs(mask)
