// The kits of metrics: a sink takes the records of a run, and its files are complete when a process ends.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "../given_fields.h"
#include "../kind_kits.h"
#include "../plugin_kit.h"
#include "heddle/plugin/metrics.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

namespace fs = std::filesystem;

// A directory that does not exist yet and is removed at the end.
class Place {
 public:
  Place() : path_(fs::temp_directory_path() / ("heddle_kit_" + std::to_string(getpid()) + "_" + number())) {}
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  MetricsRun run(int64_t done_steps = 0) const {
    return {path_, done_steps, 8, {{"strategy", "single"}, {"world_size", "1"}}, "seed: 42\n"};
  }
  const fs::path& directory() const { return path_; }
  // Returns the contents of each file.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> out;
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(path_, ignored)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      out[entry.path().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return out;
  }

 private:
  static std::string number() {
    static int next = 0;
    return std::to_string(++next);
  }
  fs::path path_;
};

MetricsRecord training(int64_t step, double loss) {
  return {MetricsRecord::Kind::training,
          "",
          step,
          0,
          1.7e9 + static_cast<double>(step),
          {{"loss", {loss}}, {"lr", {1e-4}}, {"skipped", {0}}, {"moe/load", {0.25, 0.75}}}};
}
MetricsRecord validation(int64_t step, const std::string& set) {
  return {MetricsRecord::Kind::validation,
          set,
          step,
          0,
          1.7e9 + static_cast<double>(step),
          {{"loss", {2.5}}, {"num_label_tokens", {100}}}};
}

size_t bytes_of(const std::map<std::string, std::string>& files) {
  size_t out = 0;
  for (const auto& [name, bytes] : files) out += bytes.size();
  return out;
}

std::string takes_records(const OfferedMetrics& offered, const Node& values) {
  const Place place;
  const auto sink = offered.make(values);
  sink->start(place.run());
  sink->record(training(0, 3.5));
  sink->record(training(1, NAN));
  sink->record(training(2, INFINITY));
  sink->record(validation(2, ""));
  sink->record(validation(2, "other"));
  sink->finish();
  return std::to_string(place.files().size()) + " files";
}

// Returns the contents of each file that a finished sink has written for these records.
std::map<std::string, std::string> bytes_after(const OfferedMetrics& offered, const Node& values,
                                               const std::vector<MetricsRecord>& records) {
  const Place place;
  {
    const auto sink = offered.make(values);
    sink->start(place.run());
    for (const MetricsRecord& record : records) sink->record(record);
    sink->finish();
  }
  std::map<std::string, std::string> out;
  for (auto& [name, bytes] : place.files())
    out[fs::path(name).lexically_relative(place.directory()).string()] = std::move(bytes);
  return out;
}

// Returns whether the sink keeps the last record: without it, the files of a finished run differ.
bool keeps_last(const OfferedMetrics& offered, const Node& values, std::vector<MetricsRecord> records) {
  const auto with = bytes_after(offered, values, records);
  records.pop_back();
  return bytes_after(offered, values, records) != with;
}

std::string writes_each(const OfferedMetrics& offered, const Node& values) {
  const Place place;
  const auto sink = offered.make(values);
  sink->start(place.run());
  auto before = place.files();
  std::vector<MetricsRecord> records;
  int written = 0;
  for (int64_t step = 0; step < 4; ++step) {
    records.push_back(training(step, 3.5 - 0.25 * static_cast<double>(step)));
    sink->record(records.back());
    auto now = place.files();
    const bool changed = now != before;
    if (!changed && keeps_last(offered, values, records))
      found("the record of step " + std::to_string(step) +
            " is not in a file when record() returns: it is lost if the process is killed");
    written += changed ? 1 : 0;
    before = std::move(now);
  }
  if (written == 0) throw NotRun{"it writes nothing for a training step into the run's directory"};
  return std::to_string(written) + " of 4 records, " + std::to_string(bytes_of(before)) + " bytes";
}

// Returns the output that names the file or a directory around it, or null.
const MetricsOutput* output_of(const fs::path& file, const std::vector<MetricsOutput>& outputs) {
  const fs::path whole = fs::weakly_canonical(file);
  for (const MetricsOutput& output : outputs) {
    const fs::path at = fs::weakly_canonical(output.path), named = at.has_filename() ? at : at.parent_path();
    const bool around =
        std::mismatch(named.begin(), named.end(), whole.begin(), whole.end()).first == named.end();
    if (output.directory ? around : named == whole) return &output;
  }
  return nullptr;
}

std::vector<MetricsOutput> outputs_of(const OfferedMetrics& offered, const Node& values, const Place& place) {
  return offered.outputs ? offered.outputs(values, place.directory()) : std::vector<MetricsOutput>();
}

bool is_snapshot(const std::string& file, const std::vector<MetricsOutput>& outputs) {
  const MetricsOutput* const output = output_of(file, outputs);
  return output != nullptr && output->snapshot;
}

// Checks that files changed by records keep their bytes. Snapshots and files that only start() wrote may
// differ in the second run.
std::string keeps_what_is_there(const OfferedMetrics& offered, const Node& values) {
  const Place place;
  std::map<std::string, std::string> notes, before;
  {
    const auto sink = offered.make(values);
    sink->start(place.run());
    notes = place.files();
    for (int64_t step = 0; step < 4; ++step) sink->record(training(step, 3.5));
    before = place.files();
  }
  if (before.empty()) throw NotRun{"it writes nothing in the run's directory"};
  const auto sink = offered.make(values);
  sink->start(place.run(4));
  sink->record(training(4, 2.5));
  sink->finish();
  const auto after = place.files();
  const std::vector<MetricsOutput> outputs = outputs_of(offered, values, place);
  for (const auto& [name, bytes] : before) {
    const bool is_note = notes.count(name) != 0 && notes.at(name) == bytes;
    const bool is_kept = after.count(name) != 0 && (is_note || after.at(name).starts_with(bytes));
    if (is_snapshot(name, outputs) ? after.count(name) == 0 : !is_kept)
      found("'" + name + "' of the previous run was changed or removed" +
            (after.count(name) == 0
                 ? ""
                 : "; set MetricsOutput::snapshot for a file that holds only the latest record"));
  }
  return std::to_string(before.size()) + " files before, " + std::to_string(after.size()) + " after";
}

// Checks that a record replaces a snapshot by a rename, so that a reader that has it open sees no change.
std::string replaces_snapshots(const OfferedMetrics& offered, const Node& values) {
  const Place place;
  const auto sink = offered.make(values);
  sink->start(place.run());
  sink->record(training(0, 3.5));
  const std::vector<MetricsOutput> outputs = outputs_of(offered, values, place);
  int count = 0;
  for (const auto& [name, bytes] : place.files()) {
    if (!is_snapshot(name, outputs)) continue;
    std::ifstream open(name, std::ios::binary);
    sink->record(training(1, 2.5));
    const std::string still{std::istreambuf_iterator<char>(open), {}};
    const std::string shown = fs::path(name).lexically_relative(place.directory()).string();
    if (still != bytes)
      found("'" + shown +
            "' is a snapshot, but was written to while a reader had it open: write another file and rename "
            "it");
    if (place.files().at(name).size() > 2 * bytes.size())
      found("'" + shown + "' is a snapshot, but grows from record to record");
    ++count;
  }
  if (count == 0) throw NotRun{"it lists no snapshot in the run's directory"};
  return std::to_string(count) + " files";
}

// Checks the outputs of a run and of a run that resumes it.
std::string names_its_files(const OfferedMetrics& offered, const Node& values) {
  const Place place;
  for (const int64_t done : {0, 4}) {
    const auto sink = offered.make(values);
    sink->start(place.run(done));
    for (int64_t step = done; step < done + 4; ++step) sink->record(training(step, 3.5));
    sink->record(validation(done + 3, ""));
    sink->record(validation(done + 3, "other"));
    sink->finish();
  }
  const auto files = place.files();
  if (files.empty()) throw NotRun{"it writes nothing in the run's directory"};
  const std::vector<MetricsOutput> outputs = outputs_of(offered, values, place);
  for (const auto& [name, bytes] : files) {
    const std::string shown = fs::path(name).lexically_relative(place.directory()).string();
    const MetricsOutput* output = output_of(name, outputs);
    if (output == nullptr)
      found("it writes '" + shown +
            "' in the run's directory, but OfferedMetrics::outputs does not list it: " +
            "a user's file with this name would be overwritten");
    if (!output->directory && !bytes.empty() && !(output->is_own && output->is_own(name)))
      found("MetricsOutput::is_own returns false for '" + shown +
            "', which the sink wrote: a resumed run would be refused");
  }
  return std::to_string(files.size()) + " files";
}

void check_metrics(const OfferedSchema& schema, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& offered = static_cast<const OfferedMetrics&>(schema);
  run_schema_kits("metrics", offered, attempt);
  const std::string thing = "metrics '" + offered.name + "': ";
  if (!offered.make) {
    attempt(thing + "is built", [&]() -> std::string { throw NotRun{offered.not_built}; });
    return;
  }
  const Node values = offered.resolve(fields_of(offered, plugin)).values;
  const auto kit = [&](const std::string& sentence,
                       std::string (*check)(const OfferedMetrics&, const Node&)) {
    attempt.training(thing + sentence, [&] { return check(offered, values); });
  };
  kit("start(), record(), finish(): takes steps and validations, lists, and non-finite values",
      takes_records);
  kit("record(): the record is in a file when it returns", writes_each);
  kit("start(): a resumed run keeps existing records", keeps_what_is_there);
  kit("MetricsOutput::snapshot: each record replaces the file by a rename", replaces_snapshots);
  kit("outputs: lists each file that is written, and recognizes it", names_its_files);
}

const KindKits kMetrics(OfferedMetrics::kKind, check_metrics, {.on_device = false});

}  // namespace
}  // namespace heddle::kits
