"""Deterministic rows of random words for the cases."""

import json
import random

WORDS = ("the of a in Denver river café naïve 東京 Ünder it's don't 12 1999 3.14 \u2014 \"quoted\" (round) new\nline x_y "
         "RNA emoji\U0001f600 tab\there Zürich  spaced capital Which when WHO").split(" ")
TAIL = ["", "", "", " ", "  ", "\n", "?", "!", "...", " </s>", " <s>x", " <|im_end|>"]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, least, most):
        words = self.random.choices(WORDS, k=self.random.randint(least, most))
        return " ".join(words) + self.random.choice(TAIL)

    def squad(self, i):
        answers = [self.text(1, 5) for _ in range(self.random.choice([1, 1, 1, 2]))]
        return {"id": str(i), "title": "t", "context": self.text(3, 25), "question": self.text(2, 9),
                "answers": {"text": answers, "answer_start": [0] * len(answers)}}

    def swag(self, i):
        return {"ctx": self.text(3, 15), "endings": [self.text(1, 9) for _ in range(4)],
                "label": str(self.random.randrange(4))}

    def columns(self, i):
        return {"ctx": self.text(1, 9), "ask": self.text(2, 8), "say": self.random.choice(["", self.text(1, 6)])}

    def plain(self, i):
        messages = [{"role": "system", "content": self.text(1, 4)}] if i % 3 == 0 else []
        for _ in range(self.random.randint(1, 3)):
            messages += [{"role": "user", "content": self.text(1, 8)}, {"role": "assistant", "content": self.text(1, 8)}]
        return {"messages": messages}

    def tool(self, name):
        return {"type": "function", "function": {"name": name, "description": self.text(1, 4), "parameters": {
            "type": "object", "properties": {self.random.choice("pqr"): {"type": "string"}}}}}

    def chat(self, i):
        if i % 4 == 1:
            row = self.plain(i)
            names = {"system": "system", "user": "human", "assistant": "gpt"}
            return {"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in row["messages"]]}
        row = self.plain(i)
        for message in row["messages"]:
            if message["role"] == "assistant" and self.random.random() < .5:
                message["reasoning_content"] = self.random.choice([None, "", self.text(1, 6)])
            if message["role"] == "user" and self.random.random() < .2:
                message["content"] = [{"type": "text", "text": self.text(1, 3)}, {"type": "image"}, {"text": "b"}]
        if i % 4 == 2:
            row["tools"] = self.random.choice([[], [self.tool("look")], json.dumps([self.tool("é")])])
            call = {"function": {"name": "look", "arguments": self.random.choice([{"q": "é", "n": 1}, '{"q": 1}'])}}
            row["messages"] += [{"role": "user", "content": None}, {"role": "assistant", "content": None, "tool_calls": [call]},
                                {"role": "tool", "tool_call_id": "call_0", "content": self.text(1, 4)},
                                {"role": "assistant", "content": self.text(1, 3)}]
        return row

    def agent(self, i):
        turns = [{"role": "system", "content": self.text(1, 4)}] if i % 2 else []
        for _ in range(self.random.randint(1, 4)):
            turns.append({"role": "user", "content": self.text(1, 7)})
            if self.random.random() < .5:
                turns.append({"role": "assistant", "content": self.text(1, 5), "reasoning_content": self.text(1, 4)})
            for _ in range(self.random.randrange(3)):
                turns.append({"role": "tool_call", "content": json.dumps({"name": "f", "arguments": self.random.choice(
                    [{"a": "é"}, "text"])})})
            if turns[-1]["role"] == "tool_call":
                turns += [{"role": "tool_response", "content": self.random.choice(["4", {"b": "ü"}])} for _ in range(2)]
            turns.append({"role": "assistant", "content": self.text(1, 5)})
        if i % 5 == 0:
            turns.append({"role": "user", "content": self.text(1, 3)})
        if i == 3:
            turns[-1:] = [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "g", "arguments": {
                "k": 1}}}]}, {"role": "tool", "tool_call_id": "z", "name": "g", "content": "5"}]
        row = {"id": i, "tools": self.random.choice(["", "[]", json.dumps([self.tool("f")])])}
        if i % 4 == 3:
            names = {"system": "system", "user": "human", "assistant": "gpt", "tool_call": "function_call",
                     "tool_response": "observation", "tool": "tool"}
            return {**row, "conversations": [{"from": names[turn["role"]], "value": turn["content"],
                                              **({"reasoning_content": turn["reasoning_content"]}
                                                 if "reasoning_content" in turn else {})} for turn in turns]}
        return {**row, "messages": turns}

    def xlam(self, i):
        def parameter():
            made = {"description": self.text(1, 3), "type": self.random.choice(["str", "int", "List[int]", "float", "bool"])}
            if self.random.random() < .4:
                made["default"] = self.random.choice(["", 5, "é"])
            return made
        tools = [{"name": f"f{j}", "description": self.text(1, 4),
                  "parameters": {name: parameter() for name in "ab"[:self.random.randrange(3)]}} for j in range(2)]
        calls = [{"name": "f1", "arguments": {"a": "é", "b": j}} for j in range(self.random.randint(1, 2))]
        return {"id": i, "query": self.text(2, 8), "tools": json.dumps(tools), "answers": json.dumps(calls)}


def rows(kind, count, seed=5):
    writer = Writer(seed)
    return [getattr(writer, kind)(i) for i in range(count)]
