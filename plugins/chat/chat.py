"""Samples from conversations in OpenAI's or ShareGPT's format, as AutoModel's ChatDataset makes them."""

import json

SHAREGPT = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
            "chatgpt": "assistant", "model": "assistant", "bot": "assistant"}
NEITHER = ("Each sample must contain a `messages` list (OpenAI format) or a `conversations` list (ShareGPT format)")


def from_sharegpt(turns):
    if not isinstance(turns, list):
        raise ValueError(f"`conversations` must be a list of turns, got {type(turns).__name__}")
    messages = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise ValueError(f"Each `conversations` turn must be a dict, got {type(turn).__name__}")
        said = turn.get("from", turn.get("role"))
        if not isinstance(said, str) or said not in SHAREGPT:
            raise ValueError(f"Unsupported ShareGPT role {said!r} in `conversations`. Supported plain-chat roles: "
                             f"{sorted(SHAREGPT)}. For tool-calling traces use the agent SFT dataset "
                             "(make_agent_chat_dataset).")
        messages.append({"role": SHAREGPT[said], "content": turn.get("value", turn.get("content", ""))})
    return messages


def content(value):
    if isinstance(value, list):
        texts = [part["text"] for part in value if isinstance(part, dict) and "text" in part]
        wrong = next((text for text in texts if not isinstance(text, str)), "")
        if wrong != "":
            raise ValueError(f"the text of a message's content part is {type(wrong).__name__}, not a string")
        return " ".join(texts)
    return "" if value is None else str(value)


def word(call, key, otherwise, where):
    """Returns an optional string of a tool call."""
    value = call.get(key)
    if value is None or value == "":
        return otherwise
    if not isinstance(value, str):
        raise ValueError(f"assistant message `{where}.{key}` must be a string when provided")
    return value


def tool_call(index, call):
    where = f"tool_calls[{index}]"
    if not isinstance(call, dict):
        raise ValueError(f"assistant message `{where}` must be a dict")
    identity, kind = word(call, "id", f"call_{index}", where), word(call, "type", "function", where)
    function = call.get("function")
    if not isinstance(function, dict):
        raise ValueError(f"assistant message `{where}.function` must be a dict")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise ValueError(f"assistant message `{where}.function.name` must be a non-empty string")
    given = function.get("arguments")
    if given is None:
        raise ValueError(f"assistant message `{where}.function.arguments` is required")
    if not isinstance(given, str):
        function = {**function, "arguments": json.dumps(given)}
    return {**call, "id": identity, "type": kind, "function": dict(function)}


def message(given):
    if not isinstance(given, dict):
        raise ValueError(f"Each message must be a dict, got {type(given).__name__}")
    role = given.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"Unsupported role in messages: {role}")
    made = {**given, "content": content(given.get("content"))}
    if role == "assistant" and "reasoning_content" in given:
        made["reasoning_content"] = "" if given["reasoning_content"] is None else given["reasoning_content"]
        if not isinstance(made["reasoning_content"], str):
            raise ValueError("assistant message `reasoning_content` must be a string when provided")
    if given.get("tool_calls", ()) is None:  # as a table has it for messages without calls
        del made["tool_calls"]
    elif role == "assistant" and "tool_calls" in given:
        if not isinstance(given["tool_calls"], list):
            raise ValueError("assistant message `tool_calls` must be a list")
        made["tool_calls"] = [tool_call(index, call) for index, call in enumerate(given["tool_calls"])]
    if role == "tool" and not (isinstance(given.get("tool_call_id"), str) and given["tool_call_id"]):
        raise ValueError("tool message `tool_call_id` must be a non-empty string")
    return made


def tools_of(row):
    tools = row.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise ValueError(f"`tools` is a string but not valid JSON: {error}") from None
    if tools is not None and not isinstance(tools, list):
        raise ValueError(f"`tools` must be a list or JSON-encoded list, got {type(tools).__name__}")
    return tools or None


def conversation(row):
    messages = row.get("messages")
    if messages is None and row.get("conversations") is not None:
        messages = from_sharegpt(row["conversations"])
    if not isinstance(messages, list):
        raise ValueError(NEITHER)
    return [message(given) for given in messages], tools_of(row)


def plan(arguments, tools):
    if not tools.has_template(arguments["chat_template"]):
        raise tools.fault("ChatDataset requires a tokenizer with chat template support.", "chat_template")
    tools.read(arguments["split"], shuffle_seed=arguments["shuffle_seed"],
               skip_invalid=arguments["skip_invalid_samples"])
    tools.fill(arguments["seq_length"])
    chat = tools.chat(arguments["chat_template"], mask_reasoning=arguments["mask_reasoning_content"],
                      last_turn="after" if arguments["mask_history"] else None)
    return lambda rows: chat.samples(tools.each(rows, conversation))
