// The text of a check for every kind of exception.
#include "attempt.h"

#include <c10/util/Exception.h>

#include <exception>

#include "heddle/base/error.h"

namespace heddle::kits {

bool Attempts::operator()(const std::string& rule, const std::function<std::string()>& kit) {
  if (options_.begins) options_.begins(rule);
  Check check{rule, false, "", true};
  try {
    check.detail = kit();
    check.passed = true;
  } catch (const NotRun& none) {
    check = {rule, true, none.why, false};
  } catch (const Error& error) {
    check.detail = error.message() + (error.hint().empty() ? "" : " (" + error.hint() + ")");
  } catch (const c10::Error& error) {
    check.detail = std::string("the plugin threw: ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    check.detail = std::string("the plugin threw: ") + error.what();
  } catch (...) {
    check.detail = "the plugin threw something that is not a std::exception";
  }
  report_.checks.push_back(check);
  if (options_.ended) options_.ended(check);
  return check.passed;
}

}  // namespace heddle::kits
