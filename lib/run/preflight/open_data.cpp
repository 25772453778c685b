// Token files, and the lengths of samples beside them.
#include "lib/run/preflight/open_data.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

std::vector<std::filesystem::path> files_of(const std::vector<std::string>& patterns,
                                            const std::string& where, std::vector<LackingFiles>& lacking,
                                            std::vector<std::string>& warnings) {
  MatchingFiles found = matching_files(patterns);
  for (const std::string& pattern : found.lacking)
    lacking.push_back({where, "no file matches '" + text::excerpt(pattern) + "'"});
  if (const size_t count = found.repeated.size(); count > 0)
    warnings.push_back(where + ": " + found.repeated.front().string() +
                       (count > 1 ? " and " + std::to_string(count - 1) + " more are" : " is") +
                       " named more than once; each file is read once");
  return std::move(found.files);
}

// The first `most` samples of all files.
void keep_first(std::vector<std::vector<int64_t>>& lengths, int64_t most) {
  for (std::vector<int64_t>& of_file : lengths) {
    of_file.resize(std::min(of_file.size(), static_cast<size_t>(most)));
    most -= static_cast<int64_t>(of_file.size());
  }
}

// Its loss would be that of no token. Of packs refuse_no_packs() says why.
void refuse_no_labels(const TokenDataset& dataset, const DatasetSection& section,
                      const PackedSection& packed) {
  if (packed.rules.size > 0 || dataset.label_tokens() > 0) return;
  throw Error(ErrorCode::input, section.where,
              text::join(section.patterns) + " has no label token: a loss of it is not defined",
              "a sample needs two tokens: the last one is a label");
}

// No token would end a document, and attention would never begin anew.
void refuse_foreign_end(const TokenDataset& dataset, const DatasetSection& section,
                        std::optional<int64_t> vocabulary) {
  const std::optional<int64_t> end = dataset.document_end();
  const bool is_foreign = end && vocabulary && *end >= *vocabulary;
  if (!end || (!is_foreign && dataset.has_token(*end))) return;
  const std::string token = "the token " + std::to_string(*end);
  throw Error(
      ErrorCode::config, section.end_where,
      is_foreign ? token + " is not in the model's vocabulary of " + std::to_string(*vocabulary)
                 : token + " occurs nowhere in " + text::join(section.patterns) +
                       ", so attention would never begin anew",
      "give the id of the token that ends a document, as heddle data prints it, or leave the key out");
}

// With drop_long_samples: false.
void refuse_long(const SampleRows& rows, const PackedSection& packed) {
  if (packed.drop_long || rows.left_out == 0) return;
  const std::string numbers =
      "is too long (" + std::to_string(rows.longest) + " > " + std::to_string(rows.length) + ")";
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "Sample " + numbers + ". Set drop_long_samples=True or increase pack_size."
                  : "Dataset sample " + numbers + ". Please increase `packed_sequence_size`.",
              std::to_string(rows.left_out) + " of " + std::to_string(rows.samples.size()) +
                  " samples are longer than a pack");
}

void refuse_no_packs(const SampleRows& rows, const PackedSection& packed) {
  if (rows.packs.size() > 0) return;
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "No samples remaining after filtering."
                  : "No packs were produced: every sample was longer than packed_sequence_size=" +
                        std::to_string(rows.length) +
                        " and was dropped (drop_long_samples=True), or the input dataset was empty.",
              "Increase `packed_sequence_size` or provide samples that fit.");
}

}  // namespace

std::optional<TokenDataset> open_dataset(const DatasetSection& section, const PackedSection& packed,
                                         int64_t seed, std::vector<LackingFiles>& lacking,
                                         std::vector<std::string>& warnings) {
  const auto paths = files_of(section.patterns, section.where, lacking, warnings);
  const auto of_lengths = files_of(section.lengths, section.lengths_where, lacking, warnings);
  if (!lacking.empty()) return std::nullopt;
  if (!section.lengths.empty() && of_lengths.size() != paths.size())
    throw Error(ErrorCode::config, section.lengths_where,
                "there are " + std::to_string(paths.size()) + " token files and " +
                    std::to_string(of_lengths.size()) + " files of lengths",
                "each token file has a file of lengths; both are sorted by name");
  const SampleOrder order(static_cast<int64_t>(paths.size()), section.shuffle_files,
                          static_cast<uint64_t>(seed), 0);
  std::vector<TokenFile> files;
  std::vector<std::vector<int64_t>> lengths;
  for (int64_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    files.emplace_back(paths[at], section.bare);
    if (!of_lengths.empty()) lengths.push_back(read_lengths(of_lengths[at], files.back()));
  }
  if (of_lengths.empty()) {
    TokenDataset dataset(std::move(files), section.sequence_length, section.document_end);
    if (section.most_samples) dataset.keep_first(*section.most_samples);
    return dataset;
  }
  if (section.most_samples) keep_first(lengths, *section.most_samples);
  return TokenDataset(std::move(files), rows_of_samples(lengths, packed.rules, section.sequence_length),
                      section.document_end);
}

void check_dataset(const TokenDataset& dataset, const DatasetSection& section, const PackedSection& packed,
                   const std::string& refused, std::optional<int64_t> vocabulary) {
  refuse_no_labels(dataset, section, packed);
  refuse_foreign_end(dataset, section, vocabulary);
  if (dataset.has_documents() && !refused.empty())
    throw Error(ErrorCode::not_built, dataset.samples() ? section.lengths_where : section.where,
                "attention over documents with " + refused + " is built for the CPU only",
                "leave dataset.lengths and dataset.reset_attention_at out, or train on the CPU: "
                "dist_env.backend: gloo");
  const SampleRows* rows = dataset.samples();
  if (rows == nullptr) return;
  if (packed.rules.size > 0) {
    refuse_long(*rows, packed);
    return refuse_no_packs(*rows, packed);
  }
  if (rows->left_out > 0)
    throw Error(ErrorCode::config, section.length_where,
                std::to_string(rows->left_out) + " of " + std::to_string(rows->samples.size()) +
                    " samples are longer than a row of seq_len " + std::to_string(rows->length) +
                    "; the longest has " + std::to_string(rows->longest) + " inputs",
                "make seq_len " + std::to_string(rows->longest));
}

std::string positions_text(const ModelFacts& model) {
  return std::to_string(model.max_positions) + " positions" +
         (model.positions_reason.empty() ? "" : " (" + model.positions_reason + ")");
}

std::string or_more_positions(const ModelFacts& model) {
  return model.positions_reason.empty() ? ", or the model's max_position_embeddings larger" : "";
}

void check_longest(const TokenDataset& dataset, const DatasetSection& section, const ModelFacts& model) {
  const SampleRows* rows = dataset.samples();
  if (rows == nullptr || rows->longest_kept <= model.max_positions) return;
  throw Error(ErrorCode::config, section.lengths_where,
              "the longest sample has " + std::to_string(rows->longest_kept) +
                  " inputs, more than the model's " + positions_text(model),
              "make packed_sequence.packed_sequence_size smaller, which leaves longer samples out" +
                  or_more_positions(model));
}

std::string left_out_text(const TokenDataset& dataset, const PackedSection& packed) {
  const SampleRows* rows = dataset.samples();
  if (rows == nullptr || packed.rules.size == 0 || rows->left_out == 0) return "";
  return std::to_string(rows->left_out) + " of " + std::to_string(rows->samples.size()) +
         " samples are longer than packed_sequence_size " + std::to_string(rows->length) +
         " and are left out; the longest has " + std::to_string(rows->longest) + " inputs";
}

}  // namespace heddle
