// Names of code in a configuration.
#include "heddle/config/common_fields.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::config {

std::string component_of(const Node& dotted, std::span<const std::string> known) {
  const std::string& given = dotted.as_text();
  const std::string word = given.substr(given.find_last_of(".:") + 1);  // the whole name without either
  if (std::find(known.begin(), known.end(), word) != known.end()) return word;
  const std::string near = text::nearest(word, known);
  throw Error(ErrorCode::config, dotted.where(),
              "unknown component " + dotted.written() + "; available: " + text::join(known),
              near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace heddle::config
