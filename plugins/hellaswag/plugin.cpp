// HellaSwag: a context and the right one of its endings.
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::hellaswag {
namespace {

struct HellaSwagConfig {
  std::optional<std::string> path_or_dataset = "rowan/hellaswag";
  std::string split = "train";
  std::optional<int64_t> num_samples_limit;
  bool pad_to_max_length = true;
};

ConfigSchema<HellaSwagConfig> hellaswag_schema() {
  using C = HellaSwagConfig;
  return ConfigSchema<C>()
      .field("path_or_dataset", &C::path_or_dataset, "Hub name of the data set, a directory or a file.")
      .field("split", &C::split, "Split to use: train, validation, or a slice such as train[:1000].")
      .field("num_samples_limit", &C::num_samples_limit, "Number of rows to use, from the first.",
             at_least<int64_t>(1))
      .field("pad_to_max_length", &C::pad_to_max_length,
             "Pad each row in a pack to the longest row, rounded up to a multiple of 8. Without packing, "
             "rows are padded to the longest of their microbatch either way.");
}

}  // namespace
}  // namespace heddle::hellaswag

HEDDLE_PLUGIN("hellaswag", "0.1.0", "dataset HellaSwag") {
  plugin.texts("HellaSwag", heddle::hellaswag::hellaswag_schema(), {"hellaswag.py", {"path_or_dataset"}});
}
