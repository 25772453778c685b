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
      .field("path_or_dataset", &C::path_or_dataset, "A name of the hub, a directory or a file.")
      .field("split", &C::split, "train, validation, or slices: train[:1000].")
      .field("num_samples_limit", &C::num_samples_limit, "The first rows alone.", at_least<int64_t>(1))
      .field(
          "pad_to_max_length", &C::pad_to_max_length,
          "In a pack each row takes as many tokens as the longest, rounded up to 8. Rows that are not packed "
          "are as long as the longest of their microbatch.");
}

}  // namespace
}  // namespace heddle::hellaswag

HEDDLE_PLUGIN("hellaswag", "0.1.0", "dataset HellaSwag") {
  plugin.texts("HellaSwag", heddle::hellaswag::hellaswag_schema(), {"hellaswag.py", {"path_or_dataset"}});
}
