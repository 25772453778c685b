// Rendezvous whose answer may be an error.
#include "heddle/mesh/rendezvous.h"

#include "core/mesh/packed.h"

namespace heddle {
namespace {

constexpr char kAnswer = '+', kError = '-';

std::vector<std::string> answer_or_error(const Rendezvous::Answer& answer,
                                         std::span<const std::string> texts) {
  try {
    std::vector<std::string> answers = answer(texts);
    for (std::string& one : answers) one.insert(one.begin(), kAnswer);
    return answers;
  } catch (const Error& error) {
    return {kError + mesh::pack(error)};
  } catch (const std::exception& error) {
    return {kError + mesh::pack(Error(ErrorCode::internal, "mesh", error.what()))};
  }
}

}  // namespace

std::string Rendezvous::meet(const std::string& key, const std::string& text, const Answer& answer) {
  std::string own = hold_rendezvous(
      key, text, [&](std::span<const std::string> texts) { return answer_or_error(answer, texts); });
  if (own.front() == kError) throw mesh::unpack_error(std::string_view(own).substr(1));
  own.erase(0, 1);
  return own;
}

void Rendezvous::barrier(const std::string& key) {
  meet(key, "", [](std::span<const std::string>) { return std::vector<std::string>{""}; });
}

std::vector<std::string> Rendezvous::exchange(const std::string& key, const std::string& text) {
  const auto all = [](std::span<const std::string> texts) { return std::vector{mesh::pack(texts)}; };
  return mesh::unpack(meet(key, text, all));
}

}  // namespace heddle
