// Copies a template with its name replaced.
#include "trainer/cli/plugins/plugin_create.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"
#include "trainer/cli/plugins/templates.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// The template of a kind.
fs::path template_of(const std::string& kind) {
  const std::vector<std::string> names = template_names();
  if (names.empty())
    throw Error(ErrorCode::internal, template_directory().string(), "the templates of plugins are not there",
                "install heddle again");
  if (std::find(names.begin(), names.end(), kind) == names.end())
    throw Error(ErrorCode::usage, "heddle plugins new", "there is no template '" + kind + "' for --kind",
                "kinds are " + text::join(names));
  return template_directory() / kind;
}

// Of small letters and _.
bool is_keyword(const std::string& name) {
  static const std::set<std::string> kWords = {
      "alignas",       "alignof",     "and",        "and_eq",    "asm",       "auto",
      "bitand",        "bitor",       "bool",       "break",     "case",      "catch",
      "char",          "class",       "co_await",   "co_return", "co_yield",  "compl",
      "concept",       "const",       "const_cast", "consteval", "constexpr", "constinit",
      "continue",      "decltype",    "default",    "delete",    "do",        "double",
      "dynamic_cast",  "else",        "enum",       "explicit",  "export",    "extern",
      "false",         "float",       "for",        "friend",    "goto",      "if",
      "inline",        "int",         "long",       "mutable",   "namespace", "new",
      "noexcept",      "not",         "not_eq",     "nullptr",   "operator",  "or",
      "or_eq",         "private",     "protected",  "public",    "register",  "reinterpret_cast",
      "requires",      "return",      "short",      "signed",    "sizeof",    "static",
      "static_assert", "static_cast", "struct",     "switch",    "template",  "this",
      "thread_local",  "throw",       "true",       "try",       "typedef",   "typeid",
      "typename",      "union",       "unsigned",   "using",     "virtual",   "void",
      "volatile",      "while",       "xor",        "xor_eq",    "std",       "heddle"};
  return kWords.contains(name);
}

// Whether headers that a plugin includes may have it outside of every namespace: a function of the C library
// or of POSIX, one of their types or macros, or a namespace of LibTorch.
bool is_global(const std::string& name) {
  static const std::set<std::string> kOthers = {
      "addrinfo", "assert", "at",      "c10",       "c10d",     "caffe2",   "dirent",
      "errno",    "group",  "hostent", "imaxdiv_t", "in_addr",  "iovec",    "itimerval",
      "lconv",    "linux",  "msghdr",  "ntohl",     "option",   "passwd",   "pollfd",
      "protoent", "rlimit", "rusage",  "servent",   "sigevent", "sigval",   "sockaddr",
      "stderr",   "stdin",  "stdout",  "termios",   "testing",  "timespec", "timeval",
      "timezone", "tm",     "torch",   "ucontext",  "unix",     "utsname",  "winsize"};
  return kOthers.contains(name) || name.ends_with("_t") || ::dlsym(RTLD_DEFAULT, name.c_str()) != nullptr;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool has_class(const std::string& text, const std::string& name) {
  for (const std::string& begin : {"struct " + name, "class " + name, "using heddle::" + name})
    for (size_t at = 0; (at = text.find(begin, at)) != text.npos; at += begin.size())
      if (!std::isalnum(static_cast<unsigned char>(text[at + begin.size()]))) return true;
  return false;
}

// Its own, or that of something on offer.
bool has_name(const PluginFile& file, const std::string& name) {
  const auto is_same = [&](const std::string& other) { return text::lower(other) == name; };
  return is_same(file.name) ||
         std::any_of(file.offers.begin(), file.offers.end(), [&](const PluginFile::Offer& offer) {
           return is_same(offer.name) || std::any_of(offer.aliases.begin(), offer.aliases.end(), is_same);
         });
}

// Letters of C++, small, as names in a manifest and of files are.
void check_name(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const auto fits = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) || std::isdigit(static_cast<unsigned char>(c)) ||
           c == '_';
  };
  if (name.empty() || !std::islower(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), fits))
    throw Error(ErrorCode::usage, "heddle plugins new", "'" + name + "' is not a name for a plugin",
                "use small letters, digits and _, beginning with a letter: my_strategy");
  if (is_keyword(name))
    throw Error(ErrorCode::usage, "heddle plugins new",
                "'" + name + "' is a word of C++, and names a namespace", "choose another name: my_" + name);
  if (is_global(name))
    throw Error(ErrorCode::usage, "heddle plugins new",
                "'" + name + "' is a name of the C library or of LibTorch, and would name a namespace",
                "choose another name: my_" + name);
  if (name == "single")
    throw Error(ErrorCode::usage, "heddle plugins new", "'single' is built into the engine",
                "choose another name");
  for (const PluginFile& file : plugin::files_in(plugin::search_path({})))
    if (has_name(file, name))
      throw Error(ErrorCode::usage, "heddle plugins new",
                  "'" + name + "' is a name of the plugin " + file.path.string(), "choose another name");
  if (fs::exists(fs::symlink_status(directory)))
    throw Error(ErrorCode::usage, "heddle plugins new", "'" + directory.string() + "' is there already",
                "choose another name, or remove it");
  const fs::path parent = fs::absolute(directory).parent_path();
  if (!fs::is_directory(parent))
    throw Error(ErrorCode::usage, "heddle plugins new",
                "the directory of '" + directory.string() + "' is not there",
                "give a name in a directory that is there and may be written");
}

// "my_strategy" -> "MyStrategy".
std::string class_name(const std::string& name) {
  std::string out;
  bool start = true;
  for (const char c : name) {
    if (c != '_') out += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = c == '_';
  }
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// The template's plugin is called hello, and its class Hello.
std::string renamed(const std::string& text, const std::string& name) {
  return replaced(replaced(text, "hello", name), "Hello", class_name(name));
}

// Against the other classes of the template.
void check_class(const fs::path& from, const std::string& name) {
  if (name == "hello") return;
  for (const auto& entry : fs::directory_iterator(from))
    if (has_class(text_of(entry.path()), class_name(name)))
      throw Error(ErrorCode::usage, "heddle plugins new",
                  "the class of '" + name + "' would be " + class_name(name) +
                      ", which is another class of the template",
                  "choose another name: my_" + name);
}

void copy(const fs::path& from, const fs::path& to, const std::string& name) {
  const std::string text = text_of(from);
  std::ofstream out(to, std::ios::binary);
  if (text.empty() || !(out << renamed(text, name)) || !out.flush())
    throw Error(ErrorCode::io, to.string(), "cannot be written", "look at the disk and the permissions");
}

}  // namespace

int create_plugin(const PluginsCommand& command) {
  const fs::path directory = command.arguments.front();
  check_name(directory);
  const std::string name = directory.filename().string();
  const fs::path from = template_of(command.kind);
  check_class(from, name);
  std::error_code failure;
  if (!fs::create_directory(directory, failure))
    throw Error(ErrorCode::io, directory.string(), "cannot be made: " + failure.message(),
                "give a name in a directory that is there and may be written");
  for (const auto& entry : fs::directory_iterator(from))
    copy(entry.path(), directory / renamed(entry.path().filename().string(), name), name);
  std::cout << "wrote " << directory.string() << "/ from the template '" << command.kind << "'; "
            << (directory / "README.md").string() << " says how to build and check it\n";
  return 0;
}

}  // namespace heddle::cli
