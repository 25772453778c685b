"""Samples from rows whose columns the recipe maps, as AutoModel's ColumnMappedTextInstructionDataset makes them."""


def checked(mapping):
    """Checks a column_mapping."""
    if not isinstance(mapping, dict):
        raise ValueError("Expected column_mapping to be a dictionary")
    if "answer" not in mapping:
        raise ValueError("Expected answer to be in column_mapping")
    if len(mapping) not in (2, 3):
        raise ValueError(f"Expected 2 or 3 columns in column_mapping, got {len(mapping)}")
    for name in ("context", "question") if len(mapping) == 3 else ():
        if name not in mapping:
            raise ValueError(f"Expected {name} to be in column_mapping")
    if "context" not in mapping and "question" not in mapping:
        raise ValueError("Expected context or question to be in column_mapping")


def plan(arguments, tools):
    mapping = arguments["column_mapping"]
    try:
        checked(mapping)
    except ValueError as error:
        raise tools.fault(str(error), "column_mapping") from None
    tools.read(arguments["split"], columns=sorted(set(mapping.values())), first=arguments["limit_dataset_samples"],
               exact=True)
    tools.fill(arguments["seq_length"])
    tools.replaces = True
    only = arguments["answer_only_loss_mask"]

    def mapped(row):
        found = {name: row[column] for name, column in mapping.items() if column in row}
        for name in ("context", "question"):
            if not isinstance(found.get(name, ""), (str, type(None))):
                raise ValueError(f"{name} is {type(found[name]).__name__}, not a string")
        if len(found) < 2:
            raise ValueError(f"has none of the columns {', '.join(sorted(set(mapping.values()) - set(row)))} of "
                             f"column_mapping; its columns: {', '.join(row)}")
        for name, column in mapping.items():
            if column not in row:
                tools.note(f"have no column {column!r}, which column_mapping names as the {name}: their {name} is empty")
        return found.get("context"), found.get("question"), tools.text(found, "answer")

    def pair(row):
        context, question, answer = mapped(row)
        prompt = " ".join(part for part in (context, question, "") if part is not None)
        if len(prompt) < 2:
            raise ValueError("Expected prompt to be non-empty")
        return prompt, answer

    def conversation(row):
        context, question, answer = mapped(row)
        return [{"role": "system", "content": context or ""}, {"role": "user", "content": question or ""},
                {"role": "assistant", "content": answer}], None

    if arguments["use_hf_chat_template"] and not tools.has_template():
        tools.warn("use_hf_chat_template has no effect: the tokenizer has no chat template")
    if not (arguments["use_hf_chat_template"] and tools.has_template()):
        return lambda rows: tools.prompt_and_answer(tools.each(rows, pair), only)
    if not only:
        tools.warn("answer_only_loss_mask=False but tokenizer has chat template. Consider providing "
                   "`answer_only_loss_mask`.")
    chat = tools.chat(answer_only=only)
    return lambda rows: chat.samples(tools.each(rows, conversation))
