// CLI11 options of `heddle schedule`, which takes a schedule by name and sizes, a file, or compares all
// schedules.
#include "trainer/cli/main/schedule_arguments.h"

#include <charconv>
#include <map>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::cli {
namespace {

using Format = ScheduleCommand::Format;

void add_sizes(CLI::App& command, ScheduleCommand& to) {
  command.add_option("--ranks", to.ranks, "Number of ranks of the pipeline")->check(CLI::Range(1, 4096));
  command
      .add_option("--stages", to.stages, "Number of stages of the whole pipeline, a multiple of the ranks")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--microbatches", to.microbatches, "Number of microbatches per step")
      ->check(CLI::Range(1, 1 << 20));
}

void add_comparison(CLI::App& command, ScheduleCommand& to) {
  command.add_flag("--compare", to.compare, "Compare all schedules for these sizes, the shortest first");
  command
      .add_option("--times", to.times,
                  "Times of a forward (F), the gradients of inputs (I) and of weights (W) on all layers of a "
                  "rank, and a transfer (C), in any unit (default 1,1,1,0)")
      ->delimiter(',')
      ->expected(4)
      ->check(CLI::NonNegativeNumber)
      ->option_text("F,I,W,C");
  command
      .add_option(
          "--times-from", to.times_from,
          "Trace file of heddle train --trace; use the measured times of its last step instead of --times")
      ->option_text("TRACE")
      ->excludes("--times");
  command
      .add_option("--limit", to.limit, "Maximum number of live microbatches per rank, for auto and --compare")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  command
      .add_option(
          "--memory", to.memory,
          "Memory that one microbatch keeps on all layers of a rank: 3GiB, 800MiB; --compare prints the "
          "peak memory per rank")
      ->transform(CLI::Validator(read_size, ""))
      ->option_text("SIZE");
  command
      .add_option("--trace", to.trace,
                  "Write the simulation to this file as a trace for Perfetto; a unit of time is a "
                  "millisecond")
      ->option_text("FILE");
}

}  // namespace

namespace {

// Parses "12" or "12-14", counted from 1.
bool read_steps(const std::string& word, int64_t& first, int64_t& last) {
  const auto read = [&](std::string_view digits, int64_t& to) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const std::string_view whole = word;
  const size_t dash = whole.find('-');
  if (!read(whole.substr(0, dash), first)) return false;
  last = first;
  if (dash != whole.npos && !read(whole.substr(dash + 1), last)) return false;
  return first >= 1 && last >= first;
}

}  // namespace

void add_trace(CLI::App& command, TrainCommand& to) {
  CLI::Option* trace =
      command.add_option("--trace", to.trace,
                         "Write a trace of some steps of all ranks to this file, for Perfetto "
                         "(ui.perfetto.dev) or chrome://tracing");
  trace->option_text("FILE");
  command
      .add_option_function<std::string>(
          "--trace-steps",
          [&to](const std::string& word) {
            if (!read_steps(word, to.trace_first, to.trace_last))
              throw CLI::ValidationError("--trace-steps",
                                         "expected a step or a range such as 3 or 3-5, got '" + word + "'");
          },
          "Steps to trace, numbered as in the progress line (default: the second and the third of the "
          "run)")
      ->needs(trace)
      ->option_text("A-B");
  command.add_flag("--trace-operators", to.trace_operators, "Record LibTorch's operators in the trace too")
      ->needs(trace);
}

std::string read_size(std::string& word) {
  const std::string given = word;
  try {
    const std::string wrong = CLI::AsSizeValue(true)(word);
    if (wrong.empty() && word != "0" && !word.starts_with("-")) return "";
  } catch (const CLI::Error&) {
  }
  return "expected a size such as 5GB or 800MiB, got '" + given + "'";
}

void add_schedule(CLI::App& app, ScheduleCommand& to) {
  CLI::App* command = app.add_subcommand(
      "schedule", "Prints a pipeline schedule, compares all schedules, or checks one from a file");
  CLI::Option* name = command->add_option(
      "NAME", to.name, "Name of the schedule, case-insensitive: 1f1b, zb1p, auto, or one of a plugin");
  add_sizes(*command, to);
  add_comparison(*command, to);
  command->add_flag("--lowered", to.lowered, "Include transfers, UNSHARD, RESHARD and REDUCE_GRAD");
  const std::map<std::string, Format> formats = {
      {"table", Format::table}, {"csv", Format::csv}, {"json", Format::json}, {"svg", Format::svg}};
  command
      ->add_option_function<std::string>(
          "--format", [&to, formats](const std::string& word) { to.format = formats.at(word); },
          "Output format: table, csv (as PyTorch writes it), json or svg")
      ->check(CLI::IsMember({"table", "csv", "json", "svg"}))
      ->option_text("table|csv|json|svg");
  command->add_flag_callback(
      "--json", [&to] { to.format = Format::json; }, "Short for --format json");
  CLI::Option* csv =
      command->add_option("--csv", to.csv, "Check and print the table in this file, instead of NAME");
  csv->option_text("FILE")->excludes(name);
  for (const char* other :
       {"--ranks", "--stages", "--microbatches", "--compare", "--times", "--times-from", "--limit"})
    csv->excludes(command->get_option(other));
  for (const char* other : {"--stages", "--lowered"})
    command->get_option("--compare")->excludes(command->get_option(other));
  for (const char* other : {"NAME", "--trace"})
    command->get_option("--compare")->excludes(command->get_option(other));
  command->get_option("--memory")->needs(command->get_option("--compare"));
}

ScheduleCommand checked_schedule(ScheduleCommand asked) {
  std::string missing;
  const bool by_sizes = !asked.name.empty() || asked.compare;
  if (!by_sizes && asked.csv.empty()) missing = "a NAME, or --csv FILE";
  if (by_sizes && asked.ranks == 0) missing = "--ranks R";
  if (by_sizes && asked.ranks > 0 && asked.microbatches == 0) missing = "--microbatches M";
  if (!missing.empty())
    throw Error(ErrorCode::usage, "heddle schedule", missing + " is required",
                std::string("for example: heddle schedule ") + (asked.compare ? "--compare" : "1f1b") +
                    " --ranks 4 --microbatches 8");
  if (asked.compare && asked.format == Format::csv)
    throw Error(ErrorCode::usage, "heddle schedule", "--compare prints a table, JSON or SVG only",
                "remove --format, or use --json or --format svg");
  return asked;
}

}  // namespace heddle::cli
