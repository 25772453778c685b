// Prepares texts in a temporary directory. The prepared file stays mapped after its deletion.
#include "prepared_set.h"

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "lib/run/preflight/open_texts.h"
#include "lib/run/recipe/datasets.h"

namespace heddle::kits {
namespace {

namespace fs = std::filesystem;

class ScratchPlace {
 public:
  ScratchPlace() {
    std::string name = (fs::temp_directory_path() / "heddle_kit_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(ErrorCode::io, name, "cannot be made");
    path_ = name;
  }
  ~ScratchPlace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchPlace(const ScratchPlace&) = delete;
  ScratchPlace& operator=(const ScratchPlace&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::unique_ptr<IDataset> prepared_set(const OfferedDataset& offered, const Node& fields,
                                       const DataFacts& facts, PluginRegistry& registry, int jobs) {
  const ScratchPlace scratch;
  PreparationOptions preparation;
  preparation.directory = scratch.path();
  preparation.jobs = jobs;
  DatasetSection section;
  section.target = offered.name;
  section.where = "fields";
  section.section = (fields.is_map() ? fields : Node::map({})).with("_target_", Node::text(offered.name));
  std::vector<std::string> not_built;
  Recipe recipe;
  recipe.dataset = resolve_dataset(section, registry, not_built);
  return TextSets(recipe, registry, preparation).open(*recipe.dataset, facts);
}

}  // namespace heddle::kits
