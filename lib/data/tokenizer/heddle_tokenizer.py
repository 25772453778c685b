"""Encodes and decodes texts with Hugging Face's tokenizers. heddle starts this script and sends requests.

Arguments: a tokenizer.json, and the number of a socket. A message is a line of JSON, followed by the number of bytes in its
key "bytes". The script sends the first message. Then each request gets one answer. The script exits when the socket closes.
"""

import array
import datetime
import json
import os
import signal
import socket
import sys

PIECE = 1 << 16  # characters per piece of a long text
OVERLAP = 1 << 11  # characters on either side, so that a piece has the tokens of the whole text near a join
AGREE = 16  # consecutive tokens that two pieces must share at a join
GROUP = 32  # pieces in memory at a time


class Server:
    def __init__(self, file, channel):
        import tokenizers

        self.channel, self.file = channel, file
        self.ids, self.begin, self.read = [], 0, 0  # state of step(): all ids, and the decoded window
        self.tokenizer = tokenizers.Tokenizer.from_file(file)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        # The post-processor adds these tokens to every text.
        plain, framed = (self.tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
        before = next(at for at in range(len(framed) + 1) if framed[at:at + len(plain)] == plain)
        self.before, self.after = framed[:before], framed[before + len(plain):]
        self.send({"vocabulary": max(self.tokenizer.get_vocab().values(), default=-1) + 1,
                   "library": tokenizers.__version__})

    def send(self, answer, payload=b""):
        self.channel.write(json.dumps({**answer, "bytes": len(payload)}).encode() + b"\n" + payload)
        self.channel.flush()

    def encode(self, request, payload):
        texts, at = [], 0
        for length in request["lengths"]:
            texts.append(str(payload[at:at + length], "utf-8"))
            at += length
        short = [text for text in texts if len(text) <= 2 * PIECE]
        encoded = iter(self.tokenizer.encode_batch_fast(short, add_special_tokens=False))
        ids, lengths = array.array("I"), []
        for text in texts:
            before = len(ids)
            ids.extend(self.before)
            ids.extend(next(encoded).ids if len(text) <= 2 * PIECE else self.long(text))
            ids.extend(self.after)
            lengths.append(len(ids) - before)
        self.send({"lengths": lengths}, ids.tobytes())

    def spans(self, text, begin, encoding):
        return [(begin + a, begin + b, token) for (a, b), token in zip(encoding.offsets, encoding.ids)]

    def long(self, text):
        """Returns the ids of a long text from overlapping pieces, with all cores and little memory."""
        ids, left, joined = array.array("I"), [], 0
        starts = range(0, len(text), PIECE)
        for group in range(0, len(starts), GROUP):
            places = [max(0, start - OVERLAP) for start in starts[group:group + GROUP]]
            pieces = [text[place:start + PIECE + OVERLAP] for place, start in zip(places, starts[group:])]
            encoded = self.tokenizer.encode_batch(pieces, add_special_tokens=False)
            for place, start, piece, encoding in zip(places, starts[group:], pieces, encoded):
                right = self.spans(text, place, encoding)
                join = agreement(left, right, start) if start else (0, 0)
                if join is None:  # equal text to the left gives equal tokens
                    begin, end = joined, place + len(piece)
                    right = self.spans(text, begin, self.tokenizer.encode(text[begin:end], add_special_tokens=False))
                    join = agreement(left, right, left[0][0]) if left else None
                    place = begin
                if join is None:
                    return self.tokenizer.encode(text, add_special_tokens=False).ids
                ids.extend(span[2] for span in left[:join[0]])
                left, joined = right[join[1]:], place
        ids.extend(span[2] for span in left)
        return ids

    def id(self, request, payload):
        found = self.tokenizer.token_to_id(request["token"])
        self.send({"id": -1 if found is None else found})

    def decode(self, request, payload):
        ids = array.array("I", payload)
        self.send({}, self.tokenizer.decode(list(ids), skip_special_tokens=request["skip"]).encode())

    def chat(self, request, payload):
        """Returns the ids of a conversation rendered by the chat template, up to the start of the next answer."""
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "prepare"))
        from chat_template import ChatTemplate
        from faults import Fault
        from text_tokenizer import TextTokenizer
        try:
            known = TextTokenizer(os.path.dirname(os.path.abspath(self.file)))
            templates = request["template"] or known.templates
            if templates is None:
                raise Fault("the tokenizer has no chat template")
            template = ChatTemplate(templates, known.named(), datetime.date.today())
            text, _ = template.render(request["messages"], asks=True)
        except Fault as fault:
            return self.send({"refused": fault.hint if fault.kind == "package" else fault.what})
        self.send({}, array.array("I", self.tokenizer.encode(text, add_special_tokens=False).ids).tobytes())

    def step(self, request, payload):
        """Returns the text that this id completes, or "" while a character is incomplete."""
        self.ids.append(request["id"])
        known = self.tokenizer.decode(self.ids[self.begin:self.read])
        text = self.tokenizer.decode(self.ids[self.begin:])
        if len(text) <= len(known) or text.endswith("\ufffd"):
            return self.send({})
        self.begin, self.read = self.read, len(self.ids)
        self.send({}, text[len(known):].encode())


def agreement(left, right, at):
    """Returns an index into each list of (begin, end, id) from which both agree after character `at`, or None."""
    first = {}
    for index, span in enumerate(right):
        first.setdefault(span[0], index)
    for index, span in enumerate(left):
        if span[0] < at or span[0] not in first:
            continue
        other = first[span[0]]
        run = left[index:index + AGREE]
        if len(run) == AGREE and run == right[other:other + AGREE]:
            return index, other
    return None


def serve(file, channel):
    def answer(words):
        channel.write(json.dumps({**words, "bytes": 0}).encode() + b"\n")
        channel.flush()

    try:
        server = Server(file, channel)
    except ImportError as error:
        return answer({"missing": str(error), "python": sys.version.split()[0]})
    except BaseException as error:
        return answer({"error": str(error)})
    for line in iter(channel.readline, b""):
        request = json.loads(line)
        payload = channel.read(request.get("bytes", 0))
        try:
            {"encode": server.encode, "id": server.id, "decode": server.decode, "chat": server.chat,
             "step": server.step}[request["do"]](request, payload)
        except OSError:
            return  # heddle has exited
        except BaseException as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heddle exits and closes the socket
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        serve(sys.argv[1], connection.makefile("rwb"))
