"""All mutations, and how a suite is named."""
import files_and_ranks
import numbers_of_a_step
import parallelism
import strategies

ALL = [*strategies.MUTATIONS, *parallelism.MUTATIONS, *numbers_of_a_step.MUTATIONS, *files_and_ranks.MUTATIONS]


def suite(mutation):
    """The name of the executable and the filter of GoogleTest."""
    name, filter_ = mutation.suite.split(" ")
    return f"heddle_{name}_tests", filter_
