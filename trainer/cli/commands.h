// The commands of the `heddle` program, parsed: what its small executable passes to libheddle_trainer.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle::cli {

// "--distributed.tp_size 2": one value of the configuration, read as YAML.
struct Override {
  std::string key, value;
};

struct TrainCommand {
  std::string config;
  std::optional<Node> configuration;        // the file as main has read it; empty: it is not read yet
  std::optional<int> nproc_per_node;        // local ranks; absent: 1, or the launcher's number
  int max_restarts = 0;                     // of all local ranks, once one is lost
  std::string metrics;                      // empty: training.jsonl in the checkpoint directory
  std::optional<double> peak_flops;         // a second, of a rank's device; absent: of a table, or measured
  bool json = false;                        // an error goes to standard output too, as JSON
  std::string trace;                        // the file of a trace; empty: none
  int64_t trace_first = 0, trace_last = 0;  // steps, from 1; 0: the second and the third of the run
  bool trace_operators = false;
  std::vector<Override> overrides;
};

// The sections that --only distributed reads.
inline const std::array<std::string, 2> kEngineSections = {"distributed", "dist_env"};

struct CheckCommand {
  std::vector<std::string> configs;
  std::vector<int> world_sizes;   // empty: WORLD_SIZE of the environment, else 1
  bool only_distributed = false;  // the files may be recipes of another trainer
  bool elsewhere = false;         // the run is for another machine: what this one lacks is a warning
  bool json = false;
  bool verbose = false;    // the reason of each section and key that is skipped
  std::string cost;        // a device: what a step takes of it is printed, too
  int64_t row_length = 0;  // tokens of a row in that step; 0: of the data
  std::vector<Override> overrides;
};

struct PlanCommand {
  std::string config;
  int world_size = 1;
  std::string device = "H100";       // the name of a machine file
  std::string machine;               // a machine file; empty: that of `device`
  int nodes = 0, gpus_per_node = 0;  // 0: as the machine file says
  double network = 0;                // bytes a second of a device between nodes; 0: as the machine file says
  double memory = 0.9;               // share of a device's memory that tensors may take
  int64_t row_length = 0;            // tokens of a row; 0: of the data
  double seconds = 20;               // after which no further layout is tried
  int top = 10;
  int explain = 0;                 // the row of a layout to explain; 0: none
  std::string picture, trace;      // files of one step of this layout, else of the first; empty: none
  std::vector<std::string> fixed;  // KEY=VALUE
  std::string write;               // the file of a recipe with this layout; empty: none
  std::string measure;             // the machine file to write of this machine, in place of a plan
  bool json = false;
  std::vector<Override> overrides;
};

struct PluginsCommand {
  enum class Action { list, inspect, check, create } action = Action::list;
  std::vector<std::string> arguments;  // directories; names or files; files; a name
  bool json = false;
  bool markdown = false;          // inspect: the table as a README holds it
  std::vector<int> ranks;         // check: data-parallel ranks to train on; empty: the kits' own choice
  std::string kind = "strategy";  // create: the template
  std::string config;             // inspect: a run's file, for its `plugins:`
  std::string fields;             // check: YAML of the fields of the plugin's strategies; empty: defaults
  double time_limit = 60;         // check: seconds of one kit
  std::string device = "cpu";     // check: where models are trained
};

struct DataCommand {
  std::vector<std::string> texts;
  std::string out;
  bool force = false;     // an existing `out` is replaced
  std::string tokenizer;  // the directory of a tokenizer.json; empty: a token is a byte
  std::string end_token;  // between documents; empty: the model's own
  std::string field;      // JSON lines: the field with the text
  bool lines = false;     // each line is a document
};

struct PrepareCommand {
  std::string config;
  std::string out;  // the directory of prepared files; empty: HEDDLE_DATA, else data in checkpoint_dir
  int jobs = 0;     // threads; 0: as many as cores
  std::vector<Override> overrides;
};

struct ShowCommand {
  std::vector<std::string> files;   // of prepared samples, or recipes, whose samples are shown
  std::vector<Override> overrides;  // of the recipes
  std::string tokenizer;            // the directory of a tokenizer.json; empty: the one that made it
  int64_t first = 1, count = 3;
  std::string colour = "auto";
};

struct GenerateCommand {
  std::string directory;  // any that find_model() takes
  std::string config;     // a run's file, for its `plugins:`
  std::string tokenizer;  // the directory of a tokenizer.json; empty: the model's own
  std::string prompt;
  bool chat = false;            // the prompt is a user's message
  std::vector<int64_t> tokens;  // instead of the prompt
  int64_t max_new_tokens = 200;
  double temperature = 0.8;  // 0: the likeliest token each time
  int64_t top_k = 40;        // 0: all
  double top_p = 1.0;        // 1: all
  uint64_t seed = 42;
};

struct ConvertCommand {
  std::string source, destination;
  std::string config;                      // a run's file, for its `plugins:`
  std::string dtype;                       // of what is written; empty: as it was
  std::optional<uint64_t> max_shard_size;  // bytes of a file; empty: the files of the original, or 5 GiB
  std::optional<int> nproc_per_node;
};

struct ScheduleCommand {
  enum class Format { table, csv, json, svg } format = Format::table;
  std::string name;  // of the schedule; empty: the table of a file
  std::string csv;
  int ranks = 0, microbatches = 0;
  int stages = 0;  // of the whole pipeline; 0: what the schedule takes at least
  bool lowered = false;
  bool compare = false;         // all schedules for these sizes
  std::vector<double> times;    // F, I, W of a rank's layers and a transfer; empty: equal ones
  std::string times_from;       // the trace of a run, instead of them
  std::optional<double> limit;  // microbatches that a rank may keep alive
  uint64_t memory = 0;          // bytes of one microbatch on a rank; 0: not given
  std::string trace;            // the file of a trace of the simulation; empty: none
};

// A command line of a rank that is refused: the error is sent to the other ranks.
struct RefusedCommand {
  Error error;
};

using Command =
    std::variant<TrainCommand, CheckCommand, PlanCommand, PluginsCommand, DataCommand, GenerateCommand,
                 ConvertCommand, ScheduleCommand, PrepareCommand, ShowCommand, RefusedCommand>;

// The one function of libheddle_trainer that the executable calls, by the name below. Returns the exit
// status; throws Error.
using RunCommand = int(const Command& command);
inline constexpr const char* kRunCommand = "heddle_run_command";
// A text beside it that both sides have from the build (HEDDLE_COMMANDS): the version and a digest of this
// file. If it differs, the structs above may differ too.
inline constexpr const char* kCommandsStamp = "heddle_commands_stamp";

}  // namespace heddle::cli
