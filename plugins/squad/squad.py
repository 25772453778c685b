"""Samples of SQuAD's rows: context, question, answers."""

COLUMNS = ("context", "question", "answers")


def plan(arguments, tools):
    tools.read(arguments["split"], arguments["limit_dataset_samples"], COLUMNS)

    def samples(rows):
        pairs = []
        for row in rows:
            texts = row["answers"]["text"]
            pairs.append((f"Context: {row['context']} Question: {row['question']} Answer: ",
                          texts[0].strip() if texts else ""))
        return tools.prompt_and_answer(pairs)

    return samples
