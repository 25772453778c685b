"""Samples from xLAM rows (a query, tools, and the calls that answer the query), as AutoModel's make_xlam_dataset makes them."""

import json

TYPES = {"str": "string", "string": "string", "int": "integer", "integer": "integer", "float": "number",
         "double": "number", "number": "number", "bool": "boolean", "boolean": "boolean", "list": "array",
         "array": "array", "object": "object"}


def parsed(row, column):
    """Returns the list of objects in a column. The column may hold the list as JSON text."""
    value = json.loads(row[column]) if isinstance(row[column], str) else row[column]
    if value and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise ValueError(f"`{column}` must be a list of objects, or JSON text of one, got {type(value).__name__}")
    return value or []


def schema(tool):
    """Returns a tool in OpenAI's format. The order of its keys affects the tokens."""
    properties, required, parameters = {}, [], tool.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"`parameters` of a tool must be an object, got {type(parameters).__name__}")
    for name, given in parameters.items():
        if given is None:
            continue
        if not isinstance(given, dict):
            raise ValueError(f"the parameter {name!r} of a tool must be an object, got {type(given).__name__}")
        properties[name] = {"type": TYPES.get(str(given.get("type", "string")).lower(), "string"),
                            "description": given.get("description", "")}
        properties[name].update((key, given[key]) for key in ("enum", "default") if key in given)
        if "default" not in given:
            required.append(name)
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return {"type": "function", "function": {"name": tool["name"], "description": tool.get("description", ""),
                                             "parameters": parameters}}


def call(given, index, row_id):
    arguments = given.get("arguments", "")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call_{index}" if row_id is None else f"call_{row_id}_{index}", "type": "function",
            "function": {"name": given["name"], "arguments": arguments}}


def conversation(row, warn):
    tools, calls = parsed(row, "tools"), parsed(row, "answers")
    for kind, things in (("tool", tools), ("call", calls)):
        if not all(thing.get("name") for thing in things):
            warn(f"rows have a {kind} without a name, which is discarded")
    made = [call(given, index, row.get("id")) for index, given in enumerate(calls) if given.get("name")]
    return [{"role": "user", "content": row["query"]}, {"role": "assistant", "content": "", "tool_calls": made}], [
        schema(tool) for tool in tools if tool.get("name")]


def plan(arguments, tools):
    tools.read(arguments["split"], arguments["limit_dataset_samples"])
    tools.fill(arguments["seq_length"])
    chat = tools.chat()
    return lambda rows: chat.samples(tools.each(rows, lambda row: conversation(row, tools.warn)))
