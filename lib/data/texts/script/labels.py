"""Converts prompts and answers to token ids and the runs of tokens that are trained on."""

from faults import Fault
from text_tokenizer import GROUP



def runs(mask):
    """Returns [begin, end) of each run of ones in a bytearray of 0 and 1."""
    out, begin = [], mask.find(1)
    while begin >= 0:
        end = mask.find(0, begin)
        if end < 0:
            return out + [(begin, len(mask))]
        out.append((begin, end))
        begin = mask.find(1, end)
    return out


def groups(pairs):
    """Yields `pairs` in lists whose texts have about GROUP characters."""
    group, size = [], 0
    for pair in pairs:
        group.append(pair)
        size += len(pair[0]) + len(pair[1])
        if size > GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def prompt_and_answer(tokenizer, pairs, limit=None, answer_only=True, exact=False, ends=False, tell=None):
    """Returns samples of (prompt, answer). The first N tokens are not trained on, where N is the number of tokens of the prompt
    alone.

    N is AutoModel's count, without the tokens of the post-processor, but with the BOS of `add_bos_token: true`. With `exact`, a
    token is trained on if it contains a character of the answer. With `ends`, answers must end with eos."""
    samples, eos = [], tokenizer.eos_id
    for group in groups(pairs):
        try:
            samples += some(tokenizer, group, limit, answer_only, exact)
            if tell:
                tell(len(samples))
        except Fault as fault:
            fault.index = len(samples) + (fault.index or 0)
            raise
    for index, (ids, spans) in enumerate(samples if ends else ()):
        last = ids[-1] if ids and spans and spans[-1][1] == len(ids) and len(ids) > 1 else -100
        if last != eos or ids[-2] == eos:
            fault = Fault(f"labels[-1]={last} != eos_token_id={eos}" if last != eos else
                          f"input_ids[-1]={ids[-2]} == eos_token_id={eos}", hint="truncation: false asks for no eos")
            fault.index = index
            raise fault
    return samples


def some(tokenizer, pairs, limit, answer_only, exact):
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
    return runs(bytearray(end > begin and end > first and not special for (first, end), special
                          in zip(encoding.offsets, encoding.special_tokens_mask)))
