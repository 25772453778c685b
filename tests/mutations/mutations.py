"""The list of all mutations, and the executable and filter of a suite."""
import files_and_ranks
import numbers_of_a_step
import parallelism
import strategies

ALL = [*strategies.MUTATIONS, *parallelism.MUTATIONS, *numbers_of_a_step.MUTATIONS, *files_and_ranks.MUTATIONS]


def suite(mutation):
    """Returns the executable's name and the GoogleTest filter."""
    name, filter_ = mutation.suite.split(" ")
    return f"heddle_{name}_tests", filter_
