"""A mutation: one small fault in a source file of the engine, which a test suite must detect."""
import dataclasses

CORE, RUN, BASE = "libheddle.so", "libheddle_run.so", "libheddle_base.so"


@dataclasses.dataclass(frozen=True)
class Mutation:
    id: str
    file: str
    before: str  # occurs in the file exactly once
    after: str
    breaks: str  # effect of the fault on a run
    suite: str  # "NAME FILTER": build/tests/heddle_NAME_tests and the GoogleTest filter that must fail
    targets: tuple  # ninja targets: the library with the file, which the suite loads


def plugin(*names):
    return tuple(f"plugins/libheddle_{name}.so" for name in names)
