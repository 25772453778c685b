// Where a run stands between two steps, as JSON.
#include "trainer/loop/position.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"

namespace heddle {
namespace {

using json = nlohmann::ordered_json;
constexpr int64_t kVersion = 1;

Position position_of(const json& in) {
  Position out;
  out.step = in.at("step");
  out.epoch = in.at("epoch");
  out.sample = in.at("sample");
  const json& data = in.at("data");
  out.seed = data.at("seed");
  out.shuffled = data.at("shuffle");
  out.global_batch_size = data.at("global_batch_size");
  out.dataset_samples = data.at("samples");
  out.sequence_length = data.at("sequence_length");
  for (const auto& [key, value] : in.at("model").items()) out.model[key] = value.get<std::string>();
  return out;
}

}  // namespace

std::string to_json(const Position& position) {
  const json data{{"seed", position.seed},
                  {"shuffle", position.shuffled},
                  {"global_batch_size", position.global_batch_size},
                  {"samples", position.dataset_samples},
                  {"sequence_length", position.sequence_length}};
  const json out{{"version", kVersion},       {"step", position.step}, {"epoch", position.epoch},
                 {"sample", position.sample}, {"data", data},          {"model", position.model}};
  return out.dump(1) + "\n";
}

Position read_position(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in)
    throw Error(ErrorCode::input, file.string(), "cannot be read: there is no checkpoint to go on from",
                "name a checkpoint that this or another run of heddle train has saved");
  const json parsed = json::parse(in, nullptr, false);
  const json version = parsed.is_object() ? parsed.value("version", json()) : json();
  if (version.is_number_integer() && version != kVersion)
    throw Error(ErrorCode::input, file.string(),
                "has version " + version.dump() + ", this heddle reads version " + std::to_string(kVersion),
                "go on with the heddle that wrote it, or a newer one");
  try {
    return position_of(parsed);
  } catch (const json::exception&) {
    throw Error(ErrorCode::input, file.string(), "does not say where a run stands",
                "the file was changed; go on from another checkpoint");
  }
}

}  // namespace heddle
