"""Samples of HellaSwag's rows, as AutoModel's SFTSingleTurnPreprocessor makes them."""

LAST_IS_INPUT = 1


def plan(arguments, tools):
    split, limit = arguments["split"], arguments["num_samples_limit"]
    tools.read(split if limit is None else f"{split}[:{limit}]", columns=["ctx", "endings", "label"])
    tools.flags = LAST_IS_INPUT
    if arguments["pad_to_max_length"]:
        tools.filled_to = 8  # the longest row of the split, rounded up to a multiple of it
    special = tools.tokenizer.special_ids()

    def right(row):
        endings, label = row["endings"], str(row["label"])
        if not isinstance(endings, list):
            raise ValueError(f"endings is {type(endings).__name__}, not a list of texts")
        if not label.isdigit() or int(label) >= len(endings):
            raise ValueError(f"has the label '{label}', and {len(endings)} endings")
        return endings[int(label)]

    def samples(rows):
        endings = tools.each(rows, right)
        contexts = tools.tokenizer.ids(tools.each(rows, lambda row: row["ctx"]))
        answers = tools.tokenizer.ids(endings)
        if contexts[0] and contexts[0][-1] in special:  # the first row decides for its 1,000
            contexts = [ids[:-1] for ids in contexts]
        if answers[0] and answers[0][0] in special:
            answers = [ids[1:] for ids in answers]
        return [(context + answer, [(len(context), len(context) + len(answer))] if answer else [])
                for context, answer in zip(contexts, answers)]

    return samples
