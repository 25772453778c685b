// Builds the raw tree from yaml-cpp's events.
#include "core/config/raw_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::config {
namespace {

constexpr size_t kDeepestNesting = 100;

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& yaml, const std::string& name) : yaml_(yaml), name_(name) {}

  std::shared_ptr<Raw> root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!open_.empty()) refuse_gap(open_.back(), mark, anchor);
    leaf(Raw::Kind::null, mark, "", anchor, "");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    leaf(Raw::Kind::scalar, mark, tag, anchor, value);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const std::shared_ptr<Raw> named = anchors_.at(anchor);
    if (!named->complete) throw Error(ErrorCode::config, where(mark), "an alias inside its own value");
    if (open_.size() + named->height > kDeepestNesting)
      throw too_deep(mark, "an alias counts as its whole value");
    add(named);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Raw::Kind::list, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Raw::Kind::map, mark, tag, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  std::string where(const YAML::Mark& mark) const { return name_ + ":" + std::to_string(mark.line + 1); }

  Error too_deep(const YAML::Mark& mark, const std::string& hint) const {
    return Error(ErrorCode::config, where(mark), "nested deeper than " + std::to_string(kDeepestNesting),
                 hint);
  }

  std::shared_ptr<Raw> make(Raw::Kind kind, const YAML::Mark& mark, const std::string& tag,
                            YAML::anchor_t anchor) {
    auto raw = std::make_shared<Raw>();
    raw->kind = kind;
    raw->tag = tag;
    raw->mark = {mark.line + 1, mark.column + 1};
    if (anchor != YAML::NullAnchor) anchors_[anchor] = raw;
    return raw;
  }

  void leaf(Raw::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            const std::string& text) {
    auto raw = make(kind, mark, tag, anchor);
    raw->text = text;
    add(std::move(raw));
  }

  void open(Raw::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YAML::EmitterStyle::value style) {
    if (open_.size() >= kDeepestNesting) throw too_deep(mark, "");
    auto raw = make(kind, mark, tag, anchor);
    raw->height = 1;
    raw->complete = false;
    open_.push_back({std::move(raw), nullptr, style == YAML::EmitterStyle::Flow});
  }

  void close() {
    std::shared_ptr<Raw> done = std::move(open_.back().raw);
    open_.pop_back();
    done->complete = true;
    add(std::move(done));
  }

  void add(std::shared_ptr<Raw> value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& top = open_.back();
    top.raw->height = std::max(top.raw->height, value->height + 1);
    if (top.raw->kind == Raw::Kind::list)
      top.raw->items.push_back(std::move(value));
    else if (top.key == nullptr)
      top.key = std::move(value);
    else
      top.raw->entries.emplace_back(std::move(top.key), std::move(value)), top.key = nullptr;
  }

  struct Open {
    std::shared_ptr<Raw> raw, key;
    bool flow;  // in brackets
  };

  // yaml-cpp fills gaps with null where YAML has an error: `[1, , 2]`, `: 1`, a line without its colon.
  void refuse_gap(const Open& top, const YAML::Mark& mark, YAML::anchor_t anchor) const {
    const auto syntax = [&](const std::string& text) {
      return Error(ErrorCode::config, where(mark), "YAML syntax: " + text);
    };
    if (top.raw->kind == Raw::Kind::map && top.key == nullptr)
      throw syntax("a key is missing, or it is null");
    const auto at = static_cast<size_t>(mark.pos);
    const bool comma = at < yaml_.size() && yaml_[at] == ',';
    if (top.raw->kind == Raw::Kind::list && top.flow && comma && anchor == YAML::NullAnchor)
      throw syntax("a value is missing before ','");
    const bool on_its_key =
        top.key != nullptr && top.key->mark.line == mark.line + 1 && top.key->mark.column == mark.column + 1;
    if (!top.flow && on_its_key) throw syntax("':' is missing after '" + text::excerpt(top.key->text) + "'");
  }

  const std::string& yaml_;
  const std::string& name_;
  std::map<YAML::anchor_t, std::shared_ptr<Raw>> anchors_;
  std::vector<Open> open_;
  std::shared_ptr<Raw> root_;
};

// Returns a hint for an error that the parser found at this mark; empty: none is known.
std::string syntax_hint(const std::string& yaml, const YAML::Mark& mark) {
  std::istringstream lines(yaml);
  std::string line;
  for (int at = 0; at <= mark.line; ++at)
    if (!std::getline(lines, line)) return "";
  const size_t first = line.find_first_not_of(' ');
  if (first != line.npos && line[first] == '\t') return "indent by spaces: the line begins with a tab";
  for (const char* braces : {"{%", "{{", "{#", "${"})
    if (line.find(braces) != line.npos) return kQuoteBraces;
  const auto column = static_cast<size_t>(mark.column);
  const bool is_reserved =
      column < line.size() && std::string_view("@`%").find(line[column]) != std::string::npos;
  return is_reserved
             ? std::string("Put the value in quotes: YAML reserves ") + line[column] + " at its beginning."
             : "";
}

}  // namespace

std::shared_ptr<const Raw> raw_tree(const std::string& yaml, const std::string& name) {
  // The end mark makes yaml-cpp see a quote that is never closed.
  std::istringstream in(yaml.ends_with('\n') ? yaml + "...\n" : yaml);
  TreeBuilder builder(yaml, name);
  try {
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) return nullptr;
    const std::shared_ptr<const Raw> first = builder.root();
    if (parser.HandleNextDocument(builder))
      throw Error(ErrorCode::config, name, "the file holds more than one YAML document", "keep one document");
    return first;
  } catch (const YAML::Exception& problem) {
    throw Error(
        ErrorCode::config,
        name + ":" + std::to_string(problem.mark.line + 1) + ":" + std::to_string(problem.mark.column + 1),
        "YAML syntax: " + problem.msg, syntax_hint(yaml, problem.mark));
  }
}

}  // namespace heddle::config
