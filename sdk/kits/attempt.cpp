// Runs a kit and converts every kind of exception to the text of a check.
#include "attempt.h"

#include <c10/util/Exception.h>

#include <exception>

#include "heddle/base/error.h"

namespace heddle::kits {

Attempts::Kit Attempts::without_device(const Kit& kit) const {
  if (watch_.device == nullptr) return kit;
  return []() -> std::string { throw NotRun{"it only runs on the CPU, in a check without --device"}; };
}

bool Attempts::run(const std::string& rule, const Kit& kit, bool trains) {
  watch_.begins(rule);
  has_training_ = has_training_ || trains;
  Check check{rule, false, "", true, trains, offer_};
  try {
    if (const std::string why = watch_.exhausted(); !why.empty()) throw NotRun{why};
    check.detail = kit();
    check.passed = true;
  } catch (const NotRun& none) {
    check = {rule, true, none.why, false, trains, offer_};
  } catch (const Error& error) {
    check.detail = error.message() + (error.hint().empty() ? "" : " (" + error.hint() + ")");
  } catch (const c10::Error& error) {
    check.detail = watch_.the_plugin() + " threw: " + error.what_without_backtrace();
  } catch (const std::exception& error) {
    check.detail = watch_.the_plugin() + " threw: " + error.what();
  } catch (const GivenUp&) {
    throw;
  } catch (...) {
    check.detail = watch_.the_plugin() + " threw something that is not a std::exception";
  }
  watch_.ended(check);
  return check.passed;
}

}  // namespace heddle::kits
