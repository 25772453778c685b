// Reads `packed_sequence:`.
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct PackedFields {
  int64_t packed_sequence_size = 0;
  std::string packing_strategy = "thd";
  std::optional<int64_t> max_packs;
  bool drop_long_samples = true, split_across_pack = false, prepacked = false;
  int64_t num_proc = 1;
};

const ConfigSchema<PackedFields>& packed_schema() {
  using W = PackedFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("packed_sequence_size", &W::packed_sequence_size,
                 "Number of tokens per pack. 0 disables packing.", Range<int64_t>{0, kLargestSize})
          .field("packing_strategy", &W::packing_strategy,
                 "Packing algorithm. thd: next fit in the order of the samples. neat: longest sample first "
                 "into the emptiest "
                 "pack.",
                 OneOf{{"thd", "neat"}})
          .field("max_packs", &W::max_packs, "Maximum number of packs. null: all.", at_least<int64_t>(1))
          .field("drop_long_samples", &W::drop_long_samples,
                 "Discard samples longer than a pack, with a warning. false makes such a sample an error.")
          .field("split_across_pack", &W::split_across_pack,
                 "Split a sample that does not fit into two packs.")
          .later("split_across_pack",
                 "Packing config field(s) split_across_pack are no longer supported and have no effect")
          .field("prepacked", &W::prepacked, "The data set contains packs already.")
          .later("prepacked", "heddle packs samples itself, from their lengths")
          .field("num_proc", &W::num_proc, "Ignored: packing needs only the lengths of samples.");
  return schema;
}

}  // namespace

std::vector<FieldInfo> packed_fields() {
  return packed_schema().fields();
}

PackedSection read_packed(const Node& section, NotBuilt& not_built, SectionErrors& found) {
  const PackedFields words = packed_schema().read(section, found);
  PackedSection packed;
  packed.rules = {words.packing_strategy == "neat" ? Packer::neat : Packer::thd, words.packed_sequence_size,
                  words.max_packs};
  packed.drop_long = words.drop_long_samples;
  packed.where = key_location(section, "packed_sequence_size");
  add_not_built(not_built, "packed_sequence", packed_schema(), words);
  return packed;
}

}  // namespace heddle::recipe
