"""Renders chat templates like transformers 5.12.1: in Jinja2's sandbox, with limits on time and memory."""

import datetime
import json
import os
import re

import limits
from faults import Fault, package
from tokenizer_files import read_text

GENERATION = re.compile(r"\{%-?\s+generation\s+-?%\}")
REPEATED = 16 << 20  # maximum characters or items of a repetition by *
BITS = 1 << 16  # maximum bits of a product or power


def resolved(text):
    """Returns the template that a recipe's `chat_template` names: the text itself, a file, or a key of a JSON file."""
    if text is None or "{%" in text or "{{" in text:
        return text
    if len(text) > 4096 or not os.path.exists(text):
        raise Fault(f"'{text[:200]}' is neither a file nor a template, which contains {{{{ or {{%", "dataset.chat_template",
                    "set it to a file or to Jinja text; a relative path starts at the working directory", "config")
    found = read_text(text)
    try:
        return json.loads(found)["chat_template"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return found


def environment(date):
    try:
        import jinja2
        import jinja2.ext
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise package(error, "chat templates are rendered with it") from None

    class Generation(jinja2.ext.Extension):
        """Implements {% generation %} ... {% endgeneration %}, which record the characters of the assistant."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

        def note(self, caller):
            text = caller()
            self.environment.blocks.append((self.environment.written, self.environment.written + len(text)))
            return text

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context, operator, left, right):
            check(operator, left, right)
            return super().call_binop(context, operator, left, right)

    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda format: datetime.datetime.combine(date, datetime.time()).strftime(format)
    made.blocks, made.written = [], 0
    return made


def check(operator, left, right):
    """Limits products and powers to sizes that conversations need."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > BITS:
            raise OverflowError(f"a number of {bits} bits")
    elif operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(value, "__len__") and len(value) * times > REPEATED:
                raise OverflowError(f"{len(value) * times} characters or items by *")


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    import jinja2
    raise jinja2.TemplateError(message)


class ChatTemplate:
    """One or several templates (by name), and the special tokens that they use."""

    def __init__(self, templates, special, date):
        self.environment, self.special = environment(date), special
        self.named = dict(templates) if isinstance(templates, dict) else {"default": templates}
        self.text = self.named.get("default", next(iter(self.named.values())))
        self.generation = GENERATION.search(self.text) is not None
        self.date = any("strftime_now" in text for text in self.named.values())
        self.compiled = {}

    def name_of(self, tools):
        """Returns the name of the template for a conversation with these tools."""
        return "tool_use" if tools is not None and "tool_use" in self.named else "default"

    def text_of(self, tools):
        return self.named.get(self.name_of(tools), self.text)

    def chosen(self, tools):
        name = self.name_of(tools)
        if name not in self.named:
            raise Fault("This model has multiple chat templates with no default specified! Available template names "
                        f"are {sorted(self.named)}.")
        if name not in self.compiled:
            self.compiled[name] = self.bounded(lambda: self.environment.from_string(self.named[name]))
        return self.compiled[name]

    def bounded(self, function):
        """Calls function() and converts the errors of a template to a Fault."""
        import jinja2
        try:
            return limits.bounded(function, "the chat template")
        except (Fault, jinja2.TemplateError) as error:
            if isinstance(error, jinja2.TemplateError) and not isinstance(error, TemplateFault):
                raise TemplateFault(error) from None
            raise
        except MemoryError:
            raise Fault(f"the chat template needs more than {limits.MEMORY >> 20} MiB") from None
        except RecursionError:
            raise Fault("the chat template calls itself without end, or is nested too deeply") from None
        except Exception as error:
            raise Fault(f"the chat template fails: {type(error).__name__}: {error}") from None

    def render(self, messages, tools=None, asks=False):
        """Returns a conversation as text, and [begin, end) of its generation blocks. asks: whether to add the generation
        prompt."""
        if not messages:
            raise Fault("a conversation without messages cannot be rendered (the first message is the assistant's?)")
        if tools is not None and not all(isinstance(tool, dict) for tool in tools):
            raise Fault("Tools should either be a JSON schema, or a callable function with type hints and a docstring "
                        "suitable for auto-conversion to a schema.")
        template, made = self.chosen(tools), self.environment
        variables = dict(self.special, messages=messages, tools=tools, documents=None, add_generation_prompt=asks)

        def rendered():
            made.blocks, made.written, parts = [], 0, []
            for part in template.generate(variables):
                parts.append(part)
                made.written += len(part)
            return "".join(parts), made.blocks

        return self.bounded(rendered if self.generation else lambda: (template.render(variables), []))


class TemplateFault(Fault):
    """An error that the template raised, or a syntax error."""

    def __init__(self, error):
        line = getattr(error, "lineno", None)
        place = f" in its line {line}" if line else ""
        super().__init__(f"the chat template fails{place}: {type(error).__name__}: {error}")
        self.said = str(error)
        if type(error).__name__ == "UndefinedError":
            self.hint = ("The messages before each answer are rendered alone, to find the answer's tokens: loop over the "
                         "messages, or mark the answers with {% generation %}. In a shell, quote the template.")
