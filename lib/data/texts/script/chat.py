"""Converts conversations to samples like AutoModel's format_chat_template."""

import re

from chat_template import TemplateFault
from faults import OF_A_ROW, Fault, about_row
from labels import runs
from text_tokenizer import GROUP

REWRITES = ("Cannot build an answer-only loss mask from conversation prefixes: rendering the first {} message(s) alone "
            "does not reproduce a prefix of the fully rendered conversation. The chat template rewrites earlier turns "
            "based on later ones (for example, Qwen3's template drops <think> blocks from assistant turns that "
            "precede the last user turn), so prefix-length arithmetic would mislabel supervised tokens. Provide a chat "
            "template that wraps assistant turns in {{% generation %}}...{{% endgeneration %}} so the tokenizer "
            "returns the assistant mask directly.")

TOOLS = re.compile(r"\btools\b")


class Chat:
    """Converts conversations to samples. last_turn: train only on the last run of the mask, selected "before" or "after"
    reasoning is masked. None: train on all runs."""

    def __init__(self, tokenizer, template, limit=None, answer_only=True, mask_reasoning=False, last_turn=None,
                 warn=None, tell=None):
        self.tokenizer, self.template, self.limit = tokenizer, template, limit
        self.answer_only, self.mask_reasoning, self.last_turn = answer_only, mask_reasoning, last_turn
        self.warn, self.tell = warn or (lambda text: None), tell or (lambda rows: None)

    def render(self, messages, tools):
        systems = [message for message in messages if message.get("role") == "system"] if self.tokenizer.nemo else []
        if len(systems) > 1:
            raise Fault("System role appeared in multiple messages. Only a single system message is supported.")
        try:
            return self.template.render(messages, tools)
        except TemplateFault as fault:
            if not systems or "System role not supported" not in fault.said:
                raise
            return self.template.render(without_system(messages, systems[0].get("content", "")), tools)

    def encode(self, texts, limit, offsets=False):
        """Returns encodings of `texts`. A fault holds the index of the text, because a conversation has several texts."""
        try:
            return self.tokenizer.encode(texts, special=False, limit=limit, offsets=offsets)
        except Fault as fault:
            fault.text, fault.index = fault.index, None
            raise

    def samples(self, conversations, names=None, places=None):
        """Returns the samples of an iterator of (messages, tools). Conversations are rendered in groups and tokenized on all
        cores. places: index of each conversation's row in the batch, if it differs from the conversation's own index. names:
        prefix of each conversation's error message."""
        made, group, size, self.lengths = [], [], 0, []
        conversations = iter(conversations)
        while True:
            try:
                conversation = next(conversations, None)
                if conversation is not None:
                    group.append(self.plan(*conversation))
                    size += sum(map(len, group[-1].texts))
                if group and (conversation is None or size > GROUP):
                    self.finish(group, made)
                    group, size = [], 0
                    self.tell(len(made))
            except (Fault, *OF_A_ROW) as error:
                raise self.about(error, len(made) + len(group), names, places) from None
            if conversation is None:
                return made

    def about(self, error, index, names, places):
        fault = error if isinstance(error, Fault) else about_row(error)
        index = index if fault.index is None else fault.index
        fault.what = (names[index] if names else "") + fault.what
        fault.index = places[index] if places else index
        return fault

    def length(self, messages, tools):
        """Returns the number of tokens of a conversation without truncation."""
        return len(self.encode([self.render(messages, tools)[0]], None)[0].ids)

    def plan(self, messages, tools):
        """Returns the renderings of a conversation: the whole text, and the prefixes that its mask needs."""
        text, blocks = self.render(messages, tools)
        planned = Planned(messages, tools, text, blocks)
        reasons = [index for index, message in enumerate(messages)
                   if message.get("role") == "assistant" and message.get("reasoning_content")]
        if reasons and "reasoning_content" not in self.template.text_of(tools):
            self.warn("Assistant messages include `reasoning_content`, but the active chat template does not reference "
                      "`reasoning_content`. Those reasoning traces may be dropped from training data.")
        self.warn_of_dropped(messages, tools)
        planned.reasons = reasons if self.mask_reasoning else []
        if self.template.generation or not self.answer_only:
            return planned
        planned.turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if not planned.turns:
            raise Fault("the conversation has no assistant message, so none of its tokens is trained on")
        for count in sorted({count for turn in planned.turns for count in (turn, turn + 1)} - {len(messages)}):
            planned.prefixes[count] = len(planned.texts)
            planned.texts.append(self.render(messages[:count], tools)[0])
        return planned

    def warn_of_dropped(self, messages, tools):
        """Warns of parts of a conversation that its template never uses."""
        named = self.template.text_of(tools)
        if any(message.get("tool_calls") for message in messages) and "tool_calls" not in named:
            self.warn("messages have `tool_calls`, and the chat template does not name them: the calls are not in the "
                      "samples; dataset.chat_template gives another template")
        if tools and not TOOLS.search(named):
            self.warn("rows have `tools`, and the chat template does not name them: they are not in the samples")

    def finish(self, group, made):
        """Appends the samples of `group` to `made`, and their numbers of tokens before truncation to self.lengths."""
        texts = [text for planned in group for text in planned.texts]
        at, first = 0, len(made)
        try:
            encodings = self.encode(texts, self.limit, self.template.generation)
        except Fault as fault:
            owners = [index for index, planned in enumerate(group) for _ in planned.texts]
            fault.index = first + owners[fault.text or 0]
            raise
        for index, planned in enumerate(group):
            mine = encodings[at:at + len(planned.texts)]
            at += len(planned.texts)
            try:
                made.append(self.sample(planned, mine))
            except Fault as fault:
                fault.index = first + index
                raise
            self.lengths.append(len(mine[0].ids) + sum(len(more.ids) for more in mine[0].overflowing))

    def sample(self, planned, encodings):
        ids = encodings[0].ids
        if self.template.generation:
            mask = generated(encodings[0], planned.blocks, len(ids))
        elif self.answer_only:
            mask = self.turns(planned, encodings, ids)
        else:
            mask = bytearray(b"\1" * len(ids))
        if self.last_turn == "before":
            keep_last(mask)
        if planned.reasons:
            self.take_reasoning_out(planned, ids, mask)
        if self.last_turn == "after":
            keep_last(mask)
        return ids, runs(mask)

    def turns(self, planned, encodings, ids):
        mask, lengths = bytearray(len(ids)), {len(planned.messages): len(ids)}
        for count, place in planned.prefixes.items():
            prefix, eos = encodings[place].ids, self.tokenizer.eos_id
            ends = 1 < len(prefix) <= len(ids) and prefix[-1] == eos and prefix[:-1] == ids[:len(prefix) - 1]
            if ids[:len(prefix)] != prefix and not ends:
                raise Fault(REWRITES.format(count))
            lengths[count] = len(prefix)
        for turn in planned.turns:
            begin, end = (min(lengths[count], len(ids)) for count in (turn, turn + 1))
            mask[begin:end] = b"\1" * (end - begin)
        return mask

    def take_reasoning_out(self, planned, ids, mask):
        """Returns zeros where the text depends on an assistant message's reasoning_content."""
        whole, offset = ids, 0
        if self.limit is not None:
            whole = self.encode(planned.texts[:1], None)[0].ids
            if ids == whole[:len(ids)]:
                offset = 0
            elif ids == whole[-len(ids):]:
                offset = len(whole) - len(ids)
            else:
                raise Fault("Cannot mask reasoning_content after truncation because the retained tokens are not a "
                            "contiguous prefix or suffix of the untruncated conversation render.")
        for index in planned.reasons:
            messages = list(planned.messages)
            messages[index] = {**messages[index], "reasoning_content": ""}
            other = self.encode([self.render(messages, planned.tools)[0]], None)[0].ids
            begin, end = difference(whole, other)
            if begin >= end:
                self.warn(f"Could not isolate reasoning_content tokens for assistant message {index}. The chat "
                          "template may not render that field, or it may not render it in a distinct block.")
                continue
            begin, end = max(0, begin - offset), min(len(ids), end - offset)
            mask[begin:end] = bytes(max(0, end - begin))


class Planned:
    def __init__(self, messages, tools, text, blocks):
        self.messages, self.tools, self.blocks, self.texts = messages, tools, blocks, [text]
        self.turns, self.prefixes, self.reasons = [], {}, []


def generated(encoding, blocks, size):
    """Returns ones for the tokens of the generation blocks, up to the first block after the truncation."""
    mask = bytearray(size)
    for begin, end in blocks:
        if end < 1:
            raise Fault("an empty generation block at the beginning of the text")
        first, last = encoding.char_to_token(begin), encoding.char_to_token(end - 1)
        if first is None:
            break
        stop = last + 1 if last else size
        mask[first:stop] = b"\1" * max(0, stop - first)
    return mask


def keep_last(mask):
    """Keeps only the last run of ones."""
    before = mask.rfind(0, 0, mask.rfind(1) + 1)
    if before > 0:
        mask[:before] = bytes(before)


def difference(whole, other):
    """Returns [begin, end) of `whole` between the common prefix and suffix of both lists."""
    most = min(len(whole), len(other))
    begin = next((i for i in range(most) if whole[i] != other[i]), most)
    behind = next((i for i in range(most - begin) if whole[-1 - i] != other[-1 - i]), most - begin)
    return begin, len(whole) - behind


def without_system(messages, text):
    """Prepends the system message to the first user message."""
    rest = [message for message in messages if message.get("role") != "system"]
    for index, message in enumerate(rest):
        if message.get("role") == "user":
            rest[index] = {**message, "content": f"{text}\n{message['content']}"}
            return rest
    return [{"role": "user", "content": text}, *rest]
