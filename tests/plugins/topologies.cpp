// Parses the words of a topology and applies them to a training.
#include "plugins/topologies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "heddle/parallel/needs.h"
#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

struct Word {
  int number = 0;
  std::string fields;
};
using Words = std::map<std::string, Word>;

// Splits a line at spaces outside of parentheses.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char letter : line) {
    depth += letter == '(' ? 1 : letter == ')' ? -1 : 0;
    if (letter == ' ' && depth == 0)
      out.emplace_back();
    else
      out.back() += letter;
  }
  return out;
}

Words words_of(const std::vector<std::string>& texts) {
  static const std::regex form("([a-z]+)([0-9]*)(?:\\((.*)\\))?");
  Words out;
  for (size_t i = 1; i < texts.size(); ++i) {
    std::smatch parts;
    if (!std::regex_match(texts[i], parts, form)) throw std::invalid_argument("no word: " + texts[i]);
    if (!out.emplace(parts[1], Word{parts[2].length() > 0 ? std::stoi(parts[2]) : 0, parts[3]}).second)
      throw std::invalid_argument("two words: " + texts[i]);
  }
  return out;
}

// Removes and returns the word of this name, or a word with `number` if it is missing.
Word take(Words& words, const std::string& name, int number = 1) {
  const auto found = words.find(name);
  if (found == words.end()) return {number, ""};
  const Word word = found->second;
  words.erase(found);
  return word;
}

void set_strategy(Training& run, const std::string& text) {
  run.strategy = text.substr(0, text.find('('));
  std::string fields =
      run.strategy == text ? "" : text.substr(run.strategy.size() + 1, text.size() - run.strategy.size() - 2);
  if (run.strategy == "fsdp2" && fields.find("mp_policy") == fields.npos)
    fields = kFloat.substr(0, kFloat.size() - 1) + (fields.empty() ? "" : ", ") + fields;
  run.section = "{" + fields + "}";
}

void set_pipeline(Training& run, const std::string& schedule, int rows) {
  run.pipeline.microbatch_size = rows;
  run.pipeline.overlap = true;  // if the schedule overlaps actions
  if (!schedule.empty()) run.make_schedule = [schedule] { return make_schedule(schedule); };
}

void add_tensor(Training& run, const Word& word) {
  const std::map<std::string, std::string> known = {{"sequence", "{" + kSequence + "}"},
                                                    {"overlapped", kOverlapped}};
  const auto found = known.find(word.fields);
  run.parallelizers.emplace_back("tensor", found != known.end() ? found->second : "{" + word.fields + "}");
}

// Adds the view that the engine creates for ep_size and etp_size, over `ranks`.
void add_experts(Training& run, const Word& experts, int parts, int ranks) {
  const bool way = experts.fields == "alltoall" || experts.fields == "allgather";
  View view{"expert", {"dp", "cp", "tp"}, {{"ep_shard", ranks / (experts.number * std::max(parts, 1))}}};
  view.axes.push_back({"ep", experts.number});
  if (parts > 0) {
    view.axes.push_back({"etp", parts});
    const Needs needs = make_parallelizer("moe", "{}")->needs();
    run.table.add(needs.new_axes, needs.new_views, "the parallelizer 'moe'");
  }
  run.views = {view};
  run.parallelizers.emplace_back("moe",
                                 "moe: {" + (way ? "dispatcher: " : std::string()) + experts.fields + "}");
}

std::vector<Axis> axes_of(const std::string& strategy, int pp, int dp, int replicas, int cp, int tp) {
  if (strategy == "single") return {{"pp", pp}, {"tp", tp}};
  if (strategy == "ddp") return {{"pp", pp}, {"dp", dp}, {"tp", tp}};
  if (strategy == "megatron_fsdp") return {{"dp", dp}, {"cp", cp}, {"tp", tp}};
  return {{"pp", pp}, {"dp_replicate", replicas}, {"dp_shard", dp / replicas}, {"cp", cp}, {"tp", tp}};
}

}  // namespace

Training on(Training run, const std::string& line) {
  const std::vector<std::string> texts = split(line);
  Words words = words_of(texts);
  set_strategy(run, texts[0]);
  const bool staged = words.contains("pp");
  const Word pp = take(words, "pp"), tp = take(words, "tp"), cp = take(words, "cp"), ep = take(words, "ep");
  const int dp = take(words, "dp").number, etp = take(words, "etp", 0).number;
  run.axes = axes_of(run.strategy, pp.number, dp, take(words, "replicas").number, cp.number, tp.number);
  if (tp.number > 1) add_tensor(run, tp);
  if (ep.number > 1 || etp > 0) add_experts(run, ep, etp, dp * cp.number * tp.number);
  if (cp.number > 1) run.parallelizers.emplace_back("context", "context: {method: " + cp.fields + "}");
  if (staged) set_pipeline(run, pp.fields, take(words, "rows", 3).number);
  const int dealt = staged ? 1 : std::max(1, run.microbatches / dp);
  run.microbatches = take(words, "calls", dealt).number;
  if (words.erase("full") > 0) run.checkpointing = ActivationCheckpointing::full;
  if (words.erase("selective") > 0) run.checkpointing = ActivationCheckpointing::selective;
  if (!words.empty()) throw std::invalid_argument("unknown word: " + words.begin()->first);
  return run;
}

std::vector<std::string> alternatives(const std::string& line) {
  static const std::regex either("\\[([^\\[\\]]*\\|[^\\[\\]]*)\\]");
  std::smatch found;
  if (!std::regex_search(line, found, either)) return {line};
  std::vector<std::string> out;
  std::istringstream texts(found[1].str() + "|");
  for (std::string one; std::getline(texts, one, '|');)
    for (std::string& whole : alternatives(found.prefix().str() + one + found.suffix().str()))
      out.push_back(std::move(whole));
  return out;
}

void expect_equal_on(const Training& one, const std::vector<std::string>& lines, const Comparison& compare) {
  const Outcome want = train(one);
  for (const std::string& line : lines)
    for (const std::string& each : alternatives(line)) {
      SCOPED_TRACE(each);
      compare(train(on(one, each)), want);
    }
}

void expect_rounded_alike(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / want.losses[i], 1, 1e-2);
    EXPECT_NEAR(got.norms[i] / want.norms[i], 1, 5e-2);
  }
}

void expect_same_bits_twice(const Training& run) {
  expect_bit_equal(train(run), train(run));
}

}  // namespace heddle::tests
