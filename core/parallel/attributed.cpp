// Adds the plugin's name to its exceptions.
#include "core/parallel/attributed.h"

#include <c10/util/Exception.h>

#include <exception>

namespace heddle {

void throw_named(const Author& author, std::string_view doing, const std::string& message,
                 const std::string& hint) {
  throw Error(ErrorCode::plugin_failed, author.file.string(),
              "the plugin '" + author.name + "' " + author.version + " threw while it " + std::string(doing) +
                  ": " + message,
              hint);
}

void throw_again(const Author& author, std::string_view doing, Keep keep) {
  try {
    throw;
  } catch (const Error& error) {
    if (keep != Keep::nothing && error.code() != ErrorCode::internal) throw;
    const std::string place = keep != Keep::nothing || error.where().empty() ? "" : error.where() + ": ";
    if (error.hint().empty()) throw_named(author, doing, place + error.message());
    throw_named(author, doing, place + error.message(), error.hint());
  } catch (const c10::Error& error) {
    throw_named(author, doing, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_named(author, doing, error.what());
  } catch (...) {
    if (keep == Keep::errors_and_what_is_no_exception) throw;
    throw_named(author, doing, "something that is not a std::exception");
  }
}

}  // namespace heddle
