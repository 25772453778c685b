"""Samples of SQuAD's rows, as AutoModel's make_squad_dataset makes them."""

COLUMNS = ("context", "question", "answers")


def prompt(row):
    return f"Context: {row['context']} Question: {row['question']} Answer: "


def answers_of(row):
    answers = row["answers"]
    texts = answers.get("text") if isinstance(answers, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("`answers` must be {text: [...]}, as in rajpurkar/squad, and is "
                         f"{'a text' if isinstance(answers, str) else type(answers).__name__}; for an answer that is a "
                         "text use ColumnMappedTextInstructionDataset")
    return texts


def pair(row):
    texts = answers_of(row)
    return prompt(row), texts[0].strip() if texts else ""


def conversation(row):
    texts = answers_of(row)
    if not texts:
        raise ValueError("a row without answers has no answer for the chat template")
    asked = {"context": row.get("context") or "", "question": row.get("question") or ""}
    return [{"role": "user", "content": prompt(asked)}, {"role": "assistant", "content": texts[0].strip()}], None


def plan(arguments, tools):
    tools.read(arguments["split"], arguments["limit_dataset_samples"], COLUMNS)
    tools.fill(arguments["seq_length"])
    if not tools.has_template(arguments["chat_template"]):
        return lambda rows: tools.prompt_and_answer(tools.each(rows, pair))
    chat = tools.chat(arguments["chat_template"])
    return lambda rows: chat.samples(tools.each(rows, conversation))
