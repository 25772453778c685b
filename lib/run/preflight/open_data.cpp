// From the section of a data set to its rows.
#include "lib/run/preflight/open_data.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/batch.h"
#include "lib/data/blend/blend_set.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/preflight/open_texts.h"

namespace heddle {
namespace {

// With drop_long_samples: false.
void refuse_long(const Rows& rows, const PackedSection& packed) {
  if (packed.drop_long || rows.packing()->left_out == 0) return;
  const std::string numbers =
      "is too long (" + std::to_string(rows.packing()->longest) + " > " + std::to_string(rows.length()) + ")";
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "Sample " + numbers + ". Set drop_long_samples=True or increase pack_size."
                  : "Dataset sample " + numbers + ". Please increase `packed_sequence_size`.",
              std::to_string(rows.packing()->left_out) + " of " + std::to_string(rows.used_samples()) +
                  " samples are longer than a pack");
}

void refuse_no_packs(const Rows& rows, const PackedSection& packed) {
  if (rows.size() > 0) return;
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "No samples remaining after filtering."
                  : "No packs were produced: every sample was longer than packed_sequence_size=" +
                        std::to_string(rows.length()) +
                        " and was dropped (drop_long_samples=True), or the input dataset was empty.",
              "Increase `packed_sequence_size` or provide samples that fit.");
}

void refuse_longest(const Rows& rows, const DatasetSection& section, const ModelFacts& model) {
  if (rows.longest() <= model.max_positions) return;
  if (rows.packing() == nullptr)
    throw Error(
        ErrorCode::config, section.where,
        "the longest sample has " + std::to_string(rows.longest()) + " tokens, more than the model's " +
            positions_text(model),
        (section.texts ? "Cut the samples: " + section.section.path() + ".truncation: true, and " +
                             section.section.path() + ".seq_length: " + std::to_string(model.max_positions)
                       : std::string("cut samples")) +
            or_more_positions(model));
  const Node* lengths = section.section.find("lengths");
  throw Error(ErrorCode::config, lengths != nullptr ? lengths->where() : section.where,
              "the longest sample has " + std::to_string(rows.longest()) + " inputs, more than the model's " +
                  positions_text(model),
              "make packed_sequence.packed_sequence_size smaller, which leaves longer samples out" +
                  or_more_positions(model));
}

// A set that breaks its own rules.
void refuse_broken(const Rows& rows, const DatasetSection& section) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::plugin_failed, section.where, "the data set '" + section.target + "' " + what,
                "tell the plugin's author, or fix it");
  };
  if (rows.samples().size() < 1) refuse("has no samples");
  if (rows.packing() != nullptr) return;
  if (rows.longest() < 1) refuse("has no token");
  if (rows.longest() > rows.length())
    refuse("has a sample of " + std::to_string(rows.longest()) + " tokens, and rows of " +
           std::to_string(rows.length()));
}

const ConfigSchema<TextKeys>& text_schema() {
  using K = TextKeys;
  static const auto schema =
      ConfigSchema<K>()
          .field("tokenizer", &K::tokenizer,
                 "The tokenizer: a map with pretrained_model_name_or_path, a directory or a name of the hub; "
                 "default: the model's.")
          .field("date", &K::date, "The date that a chat template sees, YYYY-MM-DD; default: today.")
          .field("apply_split", &K::apply_split,
                 "Let split, its slices and shuffle_seed hold for local JSON files too, where NeMo AutoModel "
                 "takes every row.");
  return schema;
}

// Takes the keys of all sets of texts out of the section; the others are the plugin's.
void take_text_keys(DatasetSection& section) {
  Node own = Node::map({}, section.section.mark(), section.section.path()), others = section.section;
  for (const FieldInfo& field : text_schema().fields())
    if (const Node* given = section.section.find(field.key)) {
      own = own.with(field.key, *given);
      others = others.without(field.key);
    }
  section.texts = text_schema().read(own);
  section.section = others;
}

// limit_dataset_samples and num_samples_limit hold for every set: one that does not read them is cut here.
void take_limit(DatasetSection& section, const OfferedDataset& offered) {
  for (const char* key : {"limit_dataset_samples", "num_samples_limit"}) {
    const bool own = std::any_of(offered.fields.begin(), offered.fields.end(),
                                 [&](const FieldInfo& field) { return field.key == key; });
    const Node* given = own ? nullptr : section.section.find(key);
    if (given == nullptr) continue;
    if (!given->is_null()) {
      const int64_t most = given->as_integer();
      if (most <= 0)
        throw Error(ErrorCode::config, given->where(),
                    std::string(key) + " must be greater than 0 or null, got " + std::to_string(most));
      section.most_samples = std::min(most, section.most_samples.value_or(most));
    }
    section.section = section.section.without(key);
  }
}

}  // namespace

const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name) {
  if (name == kTokenFiles) return &token_files();
  return name == kMegatronBlend ? &blend_files() : plugins.find<OfferedDataset>(name);
}

std::vector<std::string> dataset_names(const PluginRegistry& plugins) {
  std::vector<std::string> names = plugins.names(OfferedDataset::kKind);
  names.emplace_back(kTokenFiles);
  names.emplace_back(kMegatronBlend);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FieldInfo> text_key_fields() {
  return text_schema().fields();
}

void read_dataset(DatasetSection& section, PluginRegistry& plugins, std::vector<std::string>& not_built) {
  if (section.target == token_files().name) return;  // read with the recipe
  const Node& target = *section.section.find("_target_");
  const OfferedDataset* offered = find_dataset(plugins, section.target);
  if (offered == nullptr) {
    const std::vector<std::string> names = dataset_names(plugins);
    const std::string near = text::nearest(section.target, names);
    throw Error(ErrorCode::config, target.where(),
                "unknown component " + target.written() + "; there is: " + text::join(names),
                near.empty() ? "a data set of your own is a plugin; plugins: names its directory"
                             : "did you mean '" + near + "'?");
  }
  section.section = section.section.without("_target_");
  take_limit(section, *offered);
  if (offered->texts) take_text_keys(section);
  const Resolved read = offered->resolve(section.section);
  for (const std::string& one : read.not_built) not_built.push_back(section.section.path() + "." + one);
  const Node* length = offered->length_key.empty() ? nullptr : read.values.find(offered->length_key);
  if (length == nullptr || length->is_null()) return;
  section.sequence_length = length->as_integer();
  const Node* given = section.section.find(offered->length_key);
  section.length_where = given != nullptr ? given->where() : section.where;
}

DatasetSection for_benchmark(DatasetSection section, PluginRegistry& plugins, const DataFacts& facts) {
  if (section.sequence_length == 0)
    throw Error(ErrorCode::config, section.where, "seq_len is missing",
                "a benchmark counts the operations of rows of one length");
  const OfferedDataset* offered = find_dataset(plugins, section.target);
  const auto set = [&](const char* key, int64_t value) {
    const bool has = std::any_of(offered->fields.begin(), offered->fields.end(),
                                 [&](const FieldInfo& field) { return field.key == key; });
    if (has && value > 0) section.section = section.section.with(key, Node::integer(value));
  };
  set("vocab_size", facts.vocabulary);
  set("batch_size", facts.local_batch_size);
  return section;
}

Rows open_dataset(const DatasetSection& section, const Recipe& recipe, const PackedSection& packed,
                  PluginRegistry& plugins, const DataFacts& facts) {
  std::shared_ptr<const IDataset> samples =
      section.texts ? TextSets(recipe, plugins).open(section, facts)
                    : find_dataset(plugins, section.target)->make(section.section, facts);
  return Rows(std::move(samples), packed.rules, recipe.pad_multiple, section.most_samples);
}

void check_rows(const Rows& rows, const DatasetSection& section, const PackedSection& packed,
                const std::optional<ModelFacts>& model) {
  refuse_broken(rows, section);
  if (rows.packing() != nullptr) {
    refuse_long(rows, packed);
    refuse_no_packs(rows, packed);
  }
  if (!model) return;
  refuse_longest(rows, section, *model);
}

std::string positions_text(const ModelFacts& model) {
  return std::to_string(model.max_positions) + " positions" +
         (model.positions_reason.empty() ? "" : " (" + model.positions_reason + ")");
}

std::string or_more_positions(const ModelFacts& model) {
  return model.positions_reason.empty() ? ", or the model's max_position_embeddings larger" : "";
}

// Token files compare each file with the model themselves.
std::string larger_tokenizer_text(const Rows& rows, const DatasetSection& section, const ModelFacts& model) {
  const DataTokenizer made = rows.samples().tokenizer();
  if (section.target == token_files().name || made.vocabulary <= model.vocabulary) return "";
  return section.where + ": the tokenizer of the data, " + made.name + ", has a vocabulary of " +
         std::to_string(made.vocabulary) + ", and the model one of " + std::to_string(model.vocabulary) +
         ": a sample with a token beyond the model's is refused before the first step";
}

std::string untrained_end_text(const Rows& rows, const DatasetSection& section, std::vector<int64_t> stops) {
  constexpr int64_t kMostTokens = int64_t{1} << 20;
  const IDataset& samples = rows.samples();
  if (const int64_t end = samples.tokenizer().end_token; end >= 0) stops.insert(stops.begin(), end);
  if (stops.empty()) return "";
  std::vector<int64_t> tokens, labels;
  std::vector<int32_t> documents;
  int64_t sample = 0;
  bool has_labels = false;
  for (int64_t read = 0; sample < rows.used_samples() && read < kMostTokens; ++sample) {
    const auto length = static_cast<size_t>(samples.length(sample));
    tokens.resize(length);
    labels.resize(length);
    samples.read(sample, {tokens, labels, documents, 0});
    for (const int64_t label : labels) {
      if (std::find(stops.begin(), stops.end(), label) != stops.end()) return "";
      has_labels = has_labels || label != Batch::kIgnore;
    }
    read += static_cast<int64_t>(length);
  }
  if (!has_labels) return "";
  return section.where + ": no label of the " + (sample < rows.used_samples() ? "first " : "") +
         std::to_string(sample) + " samples is the end token " + std::to_string(stops.front()) +
         ", so the model does not learn where an answer ends; set add_eos_token: true in dataset.tokenizer, "
         "or a chat template that ends each answer with the end token";
}

std::string left_out_text(const Rows& rows) {
  const Packing* packing = rows.packing();
  if (packing == nullptr || packing->left_out == 0) return "";
  return std::to_string(packing->left_out) + " of " + std::to_string(rows.used_samples()) +
         " samples are longer than packed_sequence_size " + std::to_string(rows.length()) +
         " and are left out; the longest has " + std::to_string(packing->longest) + " inputs";
}

}  // namespace heddle
