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
                 "Tokens of a pack; 0: samples are not packed.", Range<int64_t>{0, kLargestSize})
          .field(
              "packing_strategy", &W::packing_strategy,
              "thd: in the order of the samples, next fit; neat: the longest first, into the emptiest pack.",
              OneOf{{"thd", "neat"}})
          .field("max_packs", &W::max_packs, "Packs at most; null: all.", at_least<int64_t>(1))
          .field("drop_long_samples", &W::drop_long_samples,
                 "Leave out samples longer than a pack, with a warning; false: they are an error.")
          .field("split_across_pack", &W::split_across_pack, "Cut a sample that does not fit in two.")
          .later("split_across_pack",
                 "Packing config field(s) split_across_pack are no longer supported and have no effect")
          .field("prepacked", &W::prepacked, "The data set holds packs.")
          .later("prepacked", "heddle packs samples itself, from their lengths")
          .field("num_proc", &W::num_proc, "No processes are needed: packs are made of lengths alone.");
  return schema;
}

}  // namespace

std::vector<FieldInfo> packed_fields() {
  return packed_schema().fields();
}

PackedSection read_packed(const Node& section, NotBuilt& not_built, SectionErrors& found) {
  const PackedFields words = read_fields(packed_schema(), section, found);
  PackedSection packed;
  packed.rules = {words.packing_strategy == "neat" ? Packer::neat : Packer::thd, words.packed_sequence_size,
                  words.max_packs};
  packed.drop_long = words.drop_long_samples;
  packed.where = where_of(section, "packed_sequence_size");
  add_not_built(not_built, "packed_sequence", packed_schema(), words);
  return packed;
}

}  // namespace heddle::recipe
