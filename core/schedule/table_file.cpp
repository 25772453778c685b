// Reading, checking and writing tables of schedules.
#include "heddle/schedule/schedule.h"

#include "core/schedule/check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/schedule/simulate.h"

namespace heddle::schedule {
namespace {

// Larger numbers are taken for typing errors.
constexpr int kMostInAFile = 1 << 20;      // stages, or microbatches
constexpr size_t kMostTogether = 1 << 26;  // stages times microbatches

std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char letter) {
    return letter == ' ' || letter == '\t' || letter == '\r' || letter == '"';
  };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// A number at the front of the text, taken off it; -1: there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0 || number >= kMostInAFile) return -1;
  text.remove_prefix(end - text.data());
  return number;
}

bool read_action(std::string_view text, Action& action) {
  action.stage = take_number(text);
  if (action.stage < 0) return false;
  const size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view word = text.substr(0, digits);
  text.remove_prefix(digits);
  for (int kind = 0; kind <= Action::reduce_gradients; ++kind) {
    action.kind = static_cast<Action::Kind>(kind);
    action.microbatch = 0;
    const std::string name = name_of(action);
    const size_t from = std::to_string(action.stage).size();
    const bool of_stage = kind >= Action::unshard;
    if (word != std::string_view(name).substr(from, name.size() - from - (of_stage ? 0 : 1))) continue;
    if (of_stage) return text.empty();
    action.microbatch = take_number(text);
    return action.microbatch >= 0 && text.empty();
  }
  return false;
}

// One cell: an action, or "(0F3;3B1)OVERLAP_F_B".
bool read_cell(std::string_view text, std::vector<Action>& row) {
  constexpr std::string_view kOverlap = ")OVERLAP_F_B";
  if (!text.starts_with('(')) return read_action(text, row.emplace_back());
  if (!text.ends_with(kOverlap)) return false;
  text = text.substr(1, text.size() - 1 - kOverlap.size());
  const size_t middle = text.find(';');
  if (middle == text.npos) return false;
  const bool first = read_action(without_blanks(text.substr(0, middle)), row.emplace_back());
  row.back().overlaps_next = true;
  return first && read_action(without_blanks(text.substr(middle + 1)), row.emplace_back());
}

// The line; steps are counted as everywhere, from 0 and without idle cells.
std::string location(const TableFile& file, int rank) {
  return file.path + ":" + std::to_string(rank + 1);
}

void read_line(std::string_view line, TableFile& file) {
  const int rank = static_cast<int>(file.table.size());
  std::vector<Action>& row = file.table.emplace_back();
  while (!line.empty()) {
    const size_t comma = std::min(line.find(','), line.size());
    const std::string_view text = without_blanks(line.substr(0, comma));
    line.remove_prefix(std::min(comma + 1, line.size()));
    if (text.empty()) continue;
    const size_t step = row.size();
    if (!read_cell(text, row))
      throw Error(ErrorCode::input, location(file, rank),
                  "rank " + std::to_string(rank) + ", step " + std::to_string(step) + ": '" +
                      text::excerpt(text) + "' is not an action",
                  "write STAGE, KIND and MICROBATCH, such as 2F0; kinds are F B I W SEND_F RECV_F SEND_B "
                  "RECV_B, and UNSHARD RESHARD REDUCE_GRAD without a microbatch");
  }
}

void find_placement(TableFile& file) {
  for (size_t rank = 0; rank < file.table.size(); ++rank)
    for (const Action& action : file.table[rank]) {
      if (action.stage >= static_cast<int>(file.rank_of_stage.size()))
        file.rank_of_stage.resize(action.stage + 1, -1);
      if (file.rank_of_stage[action.stage] < 0) file.rank_of_stage[action.stage] = static_cast<int>(rank);
      file.microbatches = std::max(file.microbatches, action.microbatch + 1);
    }
  if (file.rank_of_stage.empty())
    throw Error(ErrorCode::input, file.path, "the table holds no action", "write a row for each rank");
  const auto hole = std::find(file.rank_of_stage.begin(), file.rank_of_stage.end(), -1);
  if (hole != file.rank_of_stage.end())
    throw Error(ErrorCode::input, file.path,
                "no rank holds stage " + std::to_string(hole - file.rank_of_stage.begin()) +
                    "; the highest stage is " + std::to_string(file.rank_of_stage.size() - 1));
  if (file.rank_of_stage.size() * file.microbatches > kMostTogether)
    throw Error(ErrorCode::input, file.path,
                std::to_string(file.rank_of_stage.size()) + " stages and " +
                    std::to_string(file.microbatches) + " microbatches are more than a table can hold");
}

void check_file(const TableFile& file) {
  const auto fault = find_fault(file.table, file.rank_of_stage, file.microbatches);
  if (!fault) return;
  throw Error(ErrorCode::input, location(file, fault->rank),
              "rank " + std::to_string(fault->rank) + ", step " + std::to_string(fault->step) + ": " +
                  fault->action + ": " + fault->text);
}

class FromTable : public IPipelineSchedule {
 public:
  explicit FromTable(TableFile file) : file_(std::move(file)) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    refuse_other("ranks", static_cast<int>(file_.table.size()), ranks);
    refuse_other("stages", static_cast<int>(file_.rank_of_stage.size()), stages);
    refuse_other("microbatches", file_.microbatches, microbatches);
    return file_.table;
  }
  int rank_of(int stage, int ranks, int stages) const override {
    refuse_other("ranks", static_cast<int>(file_.table.size()), ranks);
    refuse_other("stages", static_cast<int>(file_.rank_of_stage.size()), stages);
    return file_.rank_of_stage[stage];
  }
  StagesPerRank stages_per_rank() const override {
    const int held = static_cast<int>(file_.rank_of_stage.size() / file_.table.size());
    return {held, held};
  }

 private:
  void refuse_other(const char* what, int table, int run) const {
    if (table == run) return;
    throw Error(
        ErrorCode::input, file_.path,
        "the table is for " + std::to_string(table) + " " + what + ", and the run has " + std::to_string(run),
        "give a table of the run's size, or a schedule by name in pp_schedule");
  }
  TableFile file_;
};

std::string cell_of(const std::vector<Action>& row, size_t& at) {
  std::string cell = name_of(row[at]);
  if (!row[at].overlaps_next || at + 1 == row.size()) return cell;
  ++at;
  return "(" + cell + ";" + name_of(row[at]) + ")OVERLAP_F_B";
}

}  // namespace

bool is_lowered(const ScheduleTable& table) {
  for (const auto& row : table)
    for (const Action& action : row)
      if (!computes(action.kind)) return true;
  return false;
}

TableFile read_table(const std::string& path, const std::string& where) {
  std::error_code failure;
  std::ifstream stream;
  if (std::filesystem::is_regular_file(path, failure)) stream.open(path, std::ios::binary);
  if (!stream.is_open())
    throw Error(ErrorCode::input, where, "The specified path " + path + " does not exist or is not a file.",
                "give the path of a schedule's table; a relative path starts at the working directory");
  return parse_table({std::istreambuf_iterator<char>(stream), {}}, path);
}

TableFile parse_table(const std::string& text, const std::string& path) {
  TableFile file;
  file.path = path;
  std::string_view rest = text;
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == '\r')) rest.remove_suffix(1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    read_line(rest.substr(0, end), file);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  find_placement(file);
  check_file(file);
  return file;
}

std::unique_ptr<IPipelineSchedule> make_from_table(TableFile file) {
  const int ranks = static_cast<int>(file.table.size());
  const int stages = static_cast<int>(file.rank_of_stage.size());
  if (is_lowered(file.table))
    throw Error(ErrorCode::input, file.path, "the table holds transfers already, and a run adds them itself",
                "give the compute table: F, B, I and W alone");
  for (int rank = 0; rank < ranks; ++rank)
    if (std::count(file.rank_of_stage.begin(), file.rank_of_stage.end(), rank) * ranks != stages)
      throw Error(ErrorCode::input, location(file, rank),
                  "rank " + std::to_string(rank) + " holds another number of stages than the others",
                  "give each rank the same number of stages");
  return std::make_unique<FromTable>(std::move(file));
}

std::vector<std::vector<std::string>> table_cells(const ScheduleTable& table,
                                                  std::span<const int> rank_of_stage) {
  const bool in_time = !is_lowered(table);
  const Simulation unit = in_time ? simulate(table, rank_of_stage, {1, 1, 1, 1, 0}) : Simulation();
  std::vector<std::vector<std::string>> cells;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    std::vector<std::string>& row = cells.emplace_back();
    for (size_t at = 0; at < table[rank].size(); ++at) {
      if (in_time) row.resize(std::lround(unit.times[rank][at].start));
      row.push_back(cell_of(table[rank], at));
    }
  }
  return cells;
}

std::string to_csv(const ScheduleTable& table, std::span<const int> rank_of_stage) {
  std::string text;
  for (const auto& row : table_cells(table, rank_of_stage)) {
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + row[i];
    text += "\n";
  }
  return text;
}

}  // namespace heddle::schedule
