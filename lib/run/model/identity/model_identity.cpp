// Digests of headers and of sampled bytes of tensors.
#include "lib/run/model/identity/model_identity.h"

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/prepared_model.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kStretchBytes = 1024;
constexpr size_t kMostStretches = 8, kAllStretches = 32768;

std::vector<std::pair<uint64_t, size_t>> stretches_of(uint64_t size, size_t count) {
  if (size <= kMostStretches * kStretchBytes) return {{0, size}};
  if (count == 1) return {{(size - kStretchBytes) / 2, kStretchBytes}};
  std::vector<std::pair<uint64_t, size_t>> out;
  for (size_t i = 0; i < count; ++i)
    out.emplace_back((size - kStretchBytes) * i / (count - 1), kStretchBytes);
  return out;
}

// Builds an identity from tensors. The digest is that of lines, one per tensor with the checksum of its
// bytes.
class IdentityBuilder {
 public:
  explicit IdentityBuilder(const fs::path& place) {
    std::error_code failed;
    const fs::path resolved = fs::weakly_canonical(place, failed);
    out_.place = (failed ? place : resolved).string();
  }

  void add(const std::string& line) { lines_ += line + "\n"; }

  void add(const checkpoint::Manifest& manifest) {
    add(manifest.sum);
    for (const auto& [name, tensor] : manifest.tensors)
      out_.bytes +=
          c10::multiply_integers(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
  }

  void add(const SafetensorsFile& file, const std::string& name, size_t stretches) {
    const StoredTensor& tensor = file.tensors().at(name);
    const uint64_t size = tensor.end - tensor.begin;
    out_.bytes += static_cast<int64_t>(size);
    std::string read;
    for (const auto& [from, count] : stretches_of(size, stretches)) {
      const size_t before = read.size();
      read.resize(before + count);
      file.read_bytes(name, from, std::span(read.data() + before, count));
    }
    add(name + " " + std::to_string(static_cast<int>(tensor.dtype)) + " " +
        checkpoint::written(tensor.shape) + " " + checkpoint::checksum(read));
  }

  ModelIdentity finish() {
    out_.digest = checkpoint::checksum(lines_);
    return std::move(out_);
  }

 private:
  ModelIdentity out_;
  std::string lines_;
};

size_t stretches_for(size_t tensors) {
  return std::clamp<size_t>(kAllStretches / std::max<size_t>(tensors, 1), 1, kMostStretches);
}

// Starts reading all samples at once: sequential reads would each wait for the disk.
void read_ahead(const fs::path& path, const SafetensorsFile& file, size_t stretches) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  uint64_t header = 0;  // little-endian
  if (opened >= 0 && ::pread(opened, &header, sizeof header, 0) == sizeof header)
    for (const auto& [name, tensor] : file.tensors())
      for (const auto& [from, count] : stretches_of(tensor.end - tensor.begin, stretches))
        ::posix_fadvise(opened, static_cast<off_t>(sizeof header + header + tensor.begin + from),
                        static_cast<off_t>(count), POSIX_FADV_WILLNEED);
  if (opened >= 0) ::close(opened);
}

void add_hugging_face(const fs::path& directory, IdentityBuilder& out) {
  const HfWeights weights(directory);
  std::vector<std::string> names = weights.names();
  std::sort(names.begin(), names.end());
  std::map<std::string, SafetensorsFile> files;
  for (const std::string& name : names)
    if (const auto [file, is_new] = files.try_emplace(weights.file(name), directory / weights.file(name));
        is_new)
      read_ahead(directory / file->first, file->second, stretches_for(names.size()));
  for (const std::string& name : names)
    out.add(files.at(weights.file(name)), name, stretches_for(names.size()));
}

// Adds the checksums of the manifests, which cover all bytes and are verified whenever shards are read.
void add_sharded(const ModelPlace& place, IdentityBuilder& out) {
  for (const fs::path& directory : {place.weights, place.optimizer})
    if (!directory.empty()) out.add(checkpoint::read_manifest(directory / checkpoint::kManifest));
}

void add_adapter(const fs::path& directory, IdentityBuilder& out) {
  std::ifstream in(directory / kAdapterConfig);
  nlohmann::json config = nlohmann::json::parse(in, nullptr, false);
  if (config.is_object()) config.erase("base_model_name_or_path");
  out.add(config.dump());
  const SafetensorsFile file(directory / kAdapterWeights);
  for (const auto& [name, tensor] : file.tensors()) out.add(file, name, stretches_for(file.tensors().size()));
}

}  // namespace

bool are_alike(const ModelIdentity& a, const ModelIdentity& b) {
  return a.bytes == b.bytes && a.digest == b.digest && a.form == b.form;
}

ModelIdentity identity_of(const ModelPlace& place) {
  IdentityBuilder out(place.adapters.empty() ? place.weights : place.adapters.back());
  place.kind == ModelPlace::Kind::sharded ? add_sharded(place, out) : add_hugging_face(place.weights, out);
  for (const fs::path& adapter : place.adapters) add_adapter(adapter, out);
  return out.finish();
}

std::map<std::string, std::string> file_digests_of(const PreparedModel& model,
                                                   const std::map<std::string, ModelIdentity>& known) {
  std::map<std::string, std::string> out;
  const auto add = [&](ModelPlace place, const std::string& owner, const std::string& name) {
    const std::vector<fs::path> adapters = std::exchange(place.adapters, {});
    const auto read = adapters.empty() ? known.find(name) : known.end();
    out["weights of " + owner] =
        "checksum " + (read != known.end() ? read->second.digest : identity_of(place).digest);
    for (size_t i = 0; i < adapters.size(); ++i) {
      IdentityBuilder adapter(adapters[i]);
      add_adapter(adapters[i], adapter);
      out["adapter " + std::to_string(i + 1) + " of " + owner] = "checksum " + adapter.finish().digest;
    }
  };
  if (!model.directory.empty()) add(model.place, "the model", "model");
  for (const ActiveTransform& one : model.transforms)
    if (one.other_place) add(*one.other_place, one.name, one.name);
  for (const auto& [name, bytes] : model.origin.files)
    out[name + " of the model"] = "checksum " + checkpoint::checksum(bytes);
  out["config.json of the model"] = "checksum " + checkpoint::checksum(model.spec->config_json("float32"));
  return out;
}

std::map<std::string, ModelIdentity> identities_of(const PreparedModel& model) {
  std::map<std::string, ModelIdentity> out;
  if (!model.elsewhere().empty() && !model.directory.empty()) {
    ModelIdentity& own = out["model"] = identity_of(model.place);
    const std::map<std::string, int64_t> packed = model.packed();
    for (size_t i = 0; i < model.changes.size() && !packed.empty(); ++i)
      for (const auto& [name, derived] : model.changes[i].derived)
        if (name == derived.from) {
          own.form = model.transforms[i].name + " " + std::string(meaning_of(model.transforms[i].setting));
          break;
        }
  }
  for (const ActiveTransform& one : model.transforms)
    if (one.other_place) out[one.name] = identity_of(*one.other_place);
  return out;
}

}  // namespace heddle
