"""Samples from traces of agents that call tools, as AutoModel's make_agent_chat_dataset makes them."""

import json

SHAREGPT = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
            "function_call": "tool_call", "tool_call": "tool_call", "observation": "tool_response",
            "tool_response": "tool_response", "tool": "tool_response"}
ROLES = ("system", "user", "assistant", "tool_call", "tool_response", "tool")
ANSWERS = ("tool_response", "tool")


def text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def filled(value):
    return isinstance(value, str) and bool(value)


def reasoning(turn):
    """Returns the reasoning of a turn as an extra entry of its message."""
    found = turn.get("reasoning_content")
    return {"reasoning_content": found if isinstance(found, str) else str(found)} if found else {}


def an_object(value, what):
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, got {type(value).__name__}")
    return value


def from_sharegpt(turns):
    messages = []
    for turn in turns:
        said = an_object(turn, "a turn of `conversations`").get("from")
        if not isinstance(said, str) or said not in SHAREGPT:
            raise ValueError(f"Unsupported sharegpt role: {said!r}")
        messages.append({"role": SHAREGPT[said], "content": turn.get("value", ""), **reasoning(turn)})
    return messages


class Converter:
    """Converts a row to OpenAI's messages. Consecutive calls form one message, and responses get the ids of the calls in order."""

    def __init__(self, row_id):
        self.prefix = "call" if row_id is None else f"call_{row_id}"
        self.calls, self.pending, self.answers, self.made = 0, [], 0, []

    def call(self, name, arguments, given=None):
        identity = given if filled(given) else f"{self.prefix}_{self.calls}"
        self.calls += 1
        self.pending.append(identity)
        return {"id": identity, "type": "function", "function": {"name": name, "arguments": text(arguments)}}

    def tool_call(self, message, first):
        given = message.get("content") or "{}"
        given = an_object(json.loads(given) if isinstance(given, str) else given, "a tool_call")
        if not filled(given.get("name")):
            raise ValueError(f"tool_call missing `name`: {message!r}")
        if first:
            self.pending = []
            if not self.made or self.made[-1]["role"] != "assistant" or "tool_calls" in self.made[-1]:
                self.made.append({"role": "assistant", "content": ""})
            self.made[-1]["tool_calls"] = []
        self.made[-1]["tool_calls"].append(self.call(given["name"], given.get("arguments", "")))

    def answer(self, message, first):
        self.answers = 0 if first else self.answers + 1
        identity = message.get("tool_call_id")
        if not filled(identity):
            identity = (self.pending[self.answers] if self.answers < len(self.pending) else
                        f"{self.prefix}_response_{self.calls}_{self.answers}")
        made = {"role": "tool", "content": text(message.get("content", "")), "tool_call_id": identity}
        if filled(message.get("name")):
            made["name"] = message["name"]
        self.made.append(made)

    def plain(self, message):
        self.pending = []
        content = message.get("content", "")
        made = {"role": message["role"],
                "content": content if isinstance(content, str) else "" if content is None else str(content)}
        if message["role"] == "assistant":
            made.update(reasoning(message))
            if message.get("tool_calls") is not None:
                made["tool_calls"] = self.native(message["tool_calls"])
        self.made.append(made)

    def native(self, calls):
        if not isinstance(calls, list):
            raise ValueError(f"assistant `tool_calls` must be a list: {calls!r}")
        made = []
        for call in calls:
            if not isinstance(call, dict):
                raise ValueError(f"assistant tool call must be an object: {call!r}")
            function = call.get("function")
            if not isinstance(function, dict):
                raise ValueError(f"assistant tool call missing `function`: {call!r}")
            if not filled(function.get("name")):
                raise ValueError(f"assistant tool call missing function `name`: {call!r}")
            made.append(self.call(function["name"], function.get("arguments", ""), call.get("id")))
        return made

    def messages(self, given):
        before = None
        for message in given:
            role = message.get("role")
            if role not in ROLES:
                raise ValueError(f"Unsupported role in agent messages: {role!r}")
            if role == "tool_call":
                self.tool_call(message, before != "tool_call")
            elif role in ANSWERS:
                self.answer(message, before not in ANSWERS)
            else:
                self.plain(message)
            before = role
        return self.made


def has_assistant(row):
    for key, name, roles in (("messages", "role", ("assistant",)), ("conversations", "from", ("assistant", "gpt"))):
        if isinstance(row.get(key), list):
            return any(turn.get(name) in roles for turn in row[key] if isinstance(turn, dict))
    return False


def last_assistant(messages):
    return max((index for index, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)


def given_messages(row):
    messages = row.get("messages")
    if messages is None:
        turns = row.get("conversations")
        if turns is None:
            raise ValueError("Example missing both `messages` and `conversations` fields")
        if not isinstance(turns, list):
            raise ValueError(f"`conversations` must be a list, got {type(turns).__name__}")
        return from_sharegpt(turns)
    if not isinstance(messages, list):
        raise ValueError(f"`messages` must be a list, got {type(messages).__name__}")
    return [an_object(message, "an item of `messages`") for message in messages]


def given_tools(row):
    tools = row.get("tools")
    if isinstance(tools, str):
        tools = json.loads(tools) if tools.strip() else None
    if tools is not None and not isinstance(tools, list):
        raise ValueError(f"`tools` must be a list or JSON-encoded list, got {type(tools).__name__}")
    return tools or None


def conversation(row, arguments):
    tools, messages = given_tools(row), given_messages(row)
    if arguments["trim_incomplete_last_turn"] and last_assistant(messages) >= 0:
        messages = messages[:last_assistant(messages) + 1]
    messages = Converter(row.get("id")).messages(messages)
    if arguments["drop_history_reasoning_content"]:
        last = last_assistant(messages)
        for index, message in enumerate(messages):
            if index != last and message["role"] == "assistant":
                message.pop("reasoning_content", None)
    return messages, tools


def shortened(chat, messages, tools, longest):
    """Returns the system messages and the newest exchanges that fit. An exchange begins with a user message."""
    systems = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    starts = [i for i in range(systems, len(messages)) if messages[i]["role"] == "user"]
    if not starts or chat.length(messages, tools) <= longest:
        return messages
    for start in starts:
        left = messages[:systems] + messages[start:]
        if chat.length(left, tools) <= longest:
            return left
    return messages[:systems] + messages[starts[-1]:]


def checked(arguments, tools):
    if (arguments["dataset_name"] is None) == (arguments["path"] is None):
        raise tools.fault("Exactly one of `dataset_name` or `path` must be provided", "dataset_name")
    if arguments["filter_overlong"] and arguments["seq_length"] is None:
        raise tools.fault("`filter_overlong=True` requires `seq_length` to be set", "filter_overlong")


def plan(arguments, tools):
    checked(arguments, tools)
    longest, limit = arguments["seq_length"], arguments["limit_dataset_samples"]
    if arguments["path"] is None:
        tools.read(arguments["split"], limit)
    else:
        tools.read("train", first=limit)
    tools.fill(longest)
    cut = arguments["truncation"] not in (False, None, "do_not_truncate")
    chat = tools.chat(arguments["chat_template"], mask_reasoning=arguments["mask_reasoning_content"],
                      last_turn="before" if arguments["train_on_last_turn_only"] else None)

    def planned(row):
        messages, defined = conversation(row, arguments)
        if arguments["truncate_history"] and longest is not None:
            messages = shortened(chat, messages, defined, longest)
        return messages, defined

    def samples(rows):
        kept = [i for i, row in enumerate(rows) if not arguments["filter_no_assistant"] or has_assistant(row)]
        names = [f"Failed to format agent SFT example (id={rows[i].get('id')!r}): " for i in kept]
        made, out = chat.samples((planned(rows[i]) for i in kept), names, kept), [None] * len(rows)
        for i, sample, length in zip(kept, made, chat.lengths):
            if arguments["filter_overlong"] and length > longest:
                if arguments.get("drop_overlong"):
                    sample = tools.drop("longer than seq_length")
                else:
                    tools.note(f"are longer than seq_length {longest} and {'cut to it' if cut else 'kept whole'}: "
                               "as in AutoModel, filter_overlong discards none; set dataset.drop_overlong: true to discard them")
            out[i] = sample
        for _ in range(len(rows) - len(kept)):
            tools.drop("no assistant message")
        return out

    return samples
