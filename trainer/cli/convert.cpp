// `heddle convert`: finds the model, checks the options, and converts the model on all ranks.
#include "trainer/cli/run_commands.h"

#include <array>
#include <iostream>
#include <optional>

#include "heddle/base/error.h"
#include "lib/data/outputs.h"
#include "lib/run/convert/convert.h"
#include "lib/run/convert/convert_stage.h"
#include "lib/run/model/prepared_model.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch/ranks.h"
#include "trainer/cli/launch/stop_signals.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kTimeout{1};  // how long a rank waits for the others

// Returns the destination without a trailing "/". An empty directory may exist.
fs::path destination_of(const std::string& given) {
  const fs::path normal = fs::path(given).lexically_normal();
  const fs::path path = normal.has_filename() ? normal : normal.parent_path();
  check_free(path);
  const std::array outputs = {Output{path, "heddle convert", "model", {}, Output::Form::directory}};
  refuse_outputs(outputs, {});
  return path;
}

std::optional<c10::ScalarType> dtype_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  return word == "bfloat16" ? at::kBFloat16 : word == "float16" ? at::kHalf : at::kFloat;
}

void check_options(const ConvertCommand& command, const ModelPlace& from) {
  if (from.kind == ModelPlace::Kind::sharded || !from.adapters.empty()) return;
  const std::string given = !command.dtype.empty()   ? "--dtype"
                            : command.max_shard_size ? "--max-shard-size"
                                                     : "";
  if (!given.empty())
    throw Error(ErrorCode::usage, "heddle convert",
                given + " applies to writing a Hugging Face directory, but " + from.weights.string() +
                    " is one and becomes a sharded model",
                command.dtype.empty() ? "remove it; a sharded model has one file per rank"
                                      : "remove it; runs and heddle generate read a model in any dtype. For "
                                        "another dtype on disk, convert the sharded model back with --dtype");
}

int convert_on(const RankPlan& plan, const ConvertCommand& command) {
  if (plan.place) release_signals({});
  Conversion conversion;
  conversion.from = find_model(command.source);
  check_options(command, conversion.from);
  conversion.to = destination_of(command.destination);
  conversion.dtype = dtype_of(command.dtype);
  conversion.max_shard_size = command.max_shard_size;
  PluginRegistry plugins = plugins_of_file(command.config);
  std::optional<PreparedModel> opened;
  if (conversion.from.adapters.empty() && conversion.from.kind == ModelPlace::Kind::sharded) {
    conversion.model = read_saved_model(conversion.from, plugins);
  } else {
    opened.emplace(open_pretrained(command.source, plugins));
    conversion.model = opened->spec;
    if (conversion.from.adapters.empty())
      conversion.origin = &opened->origin;
    else
      conversion.merged = &*opened;
    if (!opened->own_head.empty()) std::cerr << "warning: " << opened->own_head << std::endl;
  }
  return run_ranks(plan, kTimeout, [&](Rendezvous& rendezvous) {
    const std::string made = heddle::convert(conversion, rendezvous);
    if (rendezvous.rank() == 0) std::cout << conversion.to.string() << ": " << made << std::endl;
    return 0;
  });
}

}  // namespace

int convert(const ConvertCommand& command) {
  const RankPlan plan = plan_ranks(command.nproc_per_node);
  return run_or_tell_others(plan, [&] { return convert_on(plan, command); });
}

}  // namespace heddle::cli
