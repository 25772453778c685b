// Parameters filled from a sharded directory.
#include "lib/checkpoint/sharded/sharded_source.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/sharded.h"

namespace heddle::checkpoint {
namespace {

struct Opened {
  Opened(const std::filesystem::path& directory, const std::filesystem::path& finer) : saved(directory) {
    if (!finer.empty() && std::filesystem::exists(finer / kManifest)) masters.emplace(finer);
  }
  std::mutex turn;
  ShardedReader saved;
  std::optional<ShardedReader> masters;
};

}  // namespace

ParameterSource sharded_source(const std::filesystem::path& directory, const std::filesystem::path& finer,
                               std::shared_ptr<const ModelSpec> model) {
  return [opened = std::make_shared<Opened>(directory, finer), model = std::move(model)](const Shard& shard) {
    const std::lock_guard turn(opened->turn);
    const auto has = [&opened](const std::string& one) { return opened->saved.has(one); };
    const std::string there = name_there(shard.name, model.get(), has);
    const std::string& name = there.empty() ? shard.name : there;
    const auto found = opened->saved.manifest().tensors.find(name);
    const bool other =
        found != opened->saved.manifest().tensors.end() && found->second.dtype != shard.tensor.scalar_type();
    const std::string master = "master." + name;
    // Master copies that differ between ranks (Shard::differs) have one more dim and are skipped.
    const bool finest = other && opened->masters && opened->masters->has(master) &&
                        opened->masters->manifest().tensors.at(master).shape == shard.shape;
    (finest ? *opened->masters : opened->saved)
        .read({finest ? master : name, shard.tensor.detach(), shard.shape, shard.offset});
    return true;
  };
}

}  // namespace heddle::checkpoint
