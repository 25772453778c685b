// Writes and reads a run's position as JSON with a checksum.
#include "lib/run/spec/position.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/nesting.h"
#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {
namespace {

using PositionJson = nlohmann::ordered_json;
constexpr int64_t kVersion = 1;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& message) {
  throw Error(ErrorCode::input, file.string(), message,
              "resume from another checkpoint, or copy this one again");
}

// Reads integers only: the JSON library would accept 1.5, true and 2^64.
class Numbers {
 public:
  explicit Numbers(const std::filesystem::path& file) : file_(file) {}

  int64_t read(const PositionJson& in, const char* key, int64_t least) const {
    const PositionJson& value = in.at(key);
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
                          : value.is_number_integer();
    if (!fits || value.get<int64_t>() < least)
      refuse(file_, std::string("contains no valid position of a run: ") + key + " is not an integer of " +
                        std::to_string(least) + " or more");
    return value.get<int64_t>();
  }

 private:
  const std::filesystem::path& file_;
};

// Returns the texts under a key; empty for a checkpoint of an older heddle.
std::map<std::string, std::string> texts_in(const PositionJson& in, const char* key) {
  std::map<std::string, std::string> out;
  const PositionJson found = in.value(key, PositionJson::object());
  for (const auto& [name, value] : found.items()) out[name] = value.get<std::string>();
  return out;
}

PositionJson written_bases(const std::map<std::string, ModelIdentity>& bases) {
  PositionJson out = PositionJson::object();
  for (const auto& [name, one] : bases)
    out[name] = {{"place", one.place}, {"bytes", one.bytes}, {"digest", one.digest}, {"form", one.form}};
  return out;
}

Position position_of(const PositionJson& in, const Numbers& numbers) {
  Position out;
  out.step = numbers.read(in, "step", 0);
  out.epoch = numbers.read(in, "epoch", 0);
  out.sample = numbers.read(in, "sample", 0);
  const PositionJson& data = in.at("data");
  out.seed = numbers.read(data, "seed", std::numeric_limits<int64_t>::min());
  out.shuffled = data.at("shuffle").get<bool>();
  out.global_batch_size = numbers.read(data, "global_batch_size", 1);
  out.dataset_samples = numbers.read(data, "samples", 1);
  out.sequence_length = numbers.read(data, "sequence_length", 1);
  out.rows = texts_in(data, "rows");
  out.content = texts_in(in, "content");
  out.settings = texts_in(in, "settings");
  const PositionJson bases = in.value("bases", PositionJson::object());
  for (const auto& [name, one] : bases.items())
    out.bases[name] = {one.at("place").get<std::string>(), numbers.read(one, "bytes", 0),
                       one.at("digest").get<std::string>(), one.at("form").get<std::string>()};
  if (const PositionJson plan = in.value("plan", PositionJson()); plan.is_object()) {
    out.next_lr = plan.at("next_lr").get<double>();
    out.total_steps = numbers.read(plan, "total_steps", 0);
  }
  for (const auto& [key, value] : in.at("model").items()) out.model[key] = value.get<std::string>();
  for (const auto& [key, value] : in.at("parts").items()) out.parts[key] = value.get<std::string>();
  return out;
}

PositionJson parse(const std::filesystem::path& file) {
  refuse_irregular(file, ErrorCode::input);
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw Error(ErrorCode::input, file.string(), "cannot be read, so there is no checkpoint to resume from",
                "use a checkpoint that heddle train has saved");
  std::ostringstream bytes;
  bytes << in.rdbuf();
  const bool readable = !text::nests_deeper(bytes.view(), text::kDeepest);
  PositionJson parsed = readable ? PositionJson::parse(bytes.view(), nullptr, false) : PositionJson();
  if (!parsed.is_object()) refuse(file, "contains no valid position of a run: it is truncated or not JSON");
  return parsed;
}

}  // namespace

std::string to_json(const Position& position) {
  const PositionJson data{{"seed", position.seed},
                          {"shuffle", position.shuffled},
                          {"global_batch_size", position.global_batch_size},
                          {"samples", position.dataset_samples},
                          {"sequence_length", position.sequence_length},
                          {"rows", position.rows}};
  PositionJson out{{"version", kVersion},
                   {"step", position.step},
                   {"epoch", position.epoch},
                   {"sample", position.sample},
                   {"data", data},
                   {"model", position.model},
                   {"parts", position.parts},
                   {"content", position.content},
                   {"settings", position.settings},
                   {"bases", written_bases(position.bases)}};
  if (position.next_lr && position.total_steps)
    out["plan"] = {{"next_lr", *position.next_lr}, {"total_steps", *position.total_steps}};
  out["checksum"] = checkpoint::checksum(out.dump());
  return out.dump(1) + "\n";
}

Position read_position(const std::filesystem::path& file) {
  PositionJson parsed = parse(file);
  const PositionJson version = parsed.value("version", PositionJson());
  if (version.is_number_integer() && version != kVersion)
    throw Error(ErrorCode::input, file.string(),
                "has version " + version.dump() + ", this heddle reads version " + std::to_string(kVersion),
                "resume with the version of heddle that wrote it, or a newer one");
  const PositionJson sum = parsed.value("checksum", PositionJson());
  parsed.erase("checksum");
  if (sum != checkpoint::checksum(parsed.dump()))
    refuse(file, "was changed after it was written: its checksum differs");
  try {
    return position_of(parsed, Numbers(file));
  } catch (const PositionJson::exception& error) {
    refuse(file, "contains no valid position of a run: " + text::excerpt(error.what(), 400));
  }
}

}  // namespace heddle
