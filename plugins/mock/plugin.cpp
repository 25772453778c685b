// NeMo AutoModel's mock data sets.
#include "heddle/plugin/entry_point.h"
#include "mock.h"

HEDDLE_PLUGIN("mock", "0.1.0", "dataset MockIterableDataset", "dataset build_unpacked_dataset") {
  using namespace heddle::mock;
  plugin.dataset<Uniform>("MockIterableDataset", uniform_schema(), "seq_len");
  plugin.dataset<Sentences>("build_unpacked_dataset", sentences_schema());
}
