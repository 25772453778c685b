// Reads whole parameters through the model's source, a share on each rank.
#include "lib/run/convert/merge.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <set>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"

namespace heddle {

void write_merged(const PreparedModel& model, const std::filesystem::path& directory,
                  Rendezvous& rendezvous) {
  std::vector<checkpoint::Part> parts;
  checkpoint::on_first(rendezvous, "merge", [&] { std::filesystem::create_directories(directory); });
  checkpoint::together(rendezvous, "merge/read", [&] {
    std::set<std::string> seen;
    for (const auto& unit : model.make())
      for (const ParameterSlot& slot : unit->parameters()) {
        if (!seen.insert(slot.name).second) continue;
        const auto count = static_cast<int>(seen.size());
        if (count % rendezvous.world_size() != rendezvous.rank()) continue;
        const auto stored = model.origin.tensors.find(slot.name);
        const at::ScalarType dtype =
            stored == model.origin.tensors.end() ? slot.tensor->scalar_type() : stored->second.dtype;
        Shard shard = whole_shard(slot, {});
        shard.tensor = at::empty(shard.shape, dtype);
        model.source(shard);
        parts.push_back(checkpoint::part_of(shard, shard.tensor));
      }
  });
  checkpoint::write_sharded(directory, "model", parts, rendezvous, "merge/write");
}

}  // namespace heddle
