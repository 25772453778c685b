// The Python module heddle._engine: the GIL, exceptions and objects between the package and the engine.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/version.h"
#include "hosted.h"
#include "world.h"

namespace py = pybind11;

namespace heddle::python {
namespace {

// A Python object that C++ code holds: dropped with the GIL, and leaked once the interpreter has ended.
class Held {
 public:
  explicit Held(py::object object)
      : object_(new py::object(std::move(object)), [](py::object* held) {
          if (!interpreter_lives()) return;
          const py::gil_scoped_acquire gil;
          delete held;
        }) {}
  py::object& operator*() const { return *object_; }

 private:
  std::shared_ptr<py::object> object_;
};

// heddle.Error with its parts; KeyboardInterrupt where Ctrl-C has ended a wait.
void set_error(const Error& error) {
  if (PyErr_CheckSignals() != 0) return;
  const py::object type = py::module_::import("heddle.errors").attr("Error");
  const auto made = [&](const Error& one) {
    return type(std::string(name_of(one.code())), one.where(), one.message(), one.hint());
  };
  py::object raised = made(error);
  if (const auto* list = dynamic_cast<const ErrorList*>(&error)) {
    py::list all;
    all.append(raised);
    for (size_t i = 1; i < list->all().size(); ++i) all.append(made(list->all()[i]));
    raised.attr("all") = py::tuple(all);
  }
  PyErr_SetObject(type.ptr(), raised.ptr());
}

// In a hook of a backward: autograd passes on a Python exception as itself, and makes a RuntimeError of
// others.
[[noreturn]] void throw_through_autograd() {
  const py::gil_scoped_acquire gil;
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const Error& error) {
    set_error(error);
  }
  python_error raised;
  raised.persist();
  throw std::move(raised);
}

std::function<void(int, std::string, std::string)> log_to(const py::object& sink) {
  return [sink = Held(sink)](int level, const std::string& room, const std::string& text) {
    if (!interpreter_lives()) return;
    const py::gil_scoped_acquire gil;
    try {
      (*sink)(level, room, text);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("heddle's log");
    }
  };
}

ParameterSource source_of(const py::object& read) {
  if (read.is_none()) return {};
  return [read = Held(read)](const Shard& shard) {
    const py::gil_scoped_acquire gil;
    return (*read)(shard.name, shard.tensor, shard.offset, shard.shape).cast<bool>();
  };
}

// Every tensor that requires a gradient in tensors, lists, tuples, dicts and the attributes of a data class.
void collect(const py::handle& value, Tensors& out, int depth = 0) {
  if (THPVariable_Check(value.ptr())) {
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (tensor.requires_grad()) out.push_back(tensor);
    return;
  }
  if (value.is_none() || depth > 16) return;
  if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
    for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value)) collect(item, out, depth + 1);
  } else if (PyDict_Check(value.ptr())) {
    for (const auto& item : py::reinterpret_borrow<py::dict>(value)) collect(item.second, out, depth + 1);
  } else if (py::hasattr(value, "__dataclass_fields__")) {
    collect(value.attr("__dict__"), out, depth + 1);
  }
}

std::shared_ptr<Hosted> make_hosted(const std::shared_ptr<World>& world, const std::string& configuration,
                                    const std::string& origin, const py::list& units,
                                    const py::object& source, const py::object& backward_ended,
                                    bool averages) {
  Hosted::Given given;
  given.world = world;
  given.configuration = configuration;
  given.origin = origin;
  for (const py::handle& unit : units) {
    const auto parts = py::reinterpret_borrow<py::tuple>(unit);
    given.units.push_back({parts[0].cast<std::string>(),
                           parts[1].cast<std::vector<std::pair<std::string, at::Tensor>>>(),
                           parts[2].cast<std::vector<at::Tensor>>()});
  }
  given.source = source_of(source);
  given.backward_ended = [ended = Held(backward_ended)](bool synchronized) {
    try {
      const py::gil_scoped_acquire gil;
      (*ended)(synchronized);
    } catch (py::error_already_set&) {
      throw_through_autograd();
    }
  };
  given.averages = averages;
  const py::gil_scoped_release no_gil;
  return std::make_shared<Hosted>(std::move(given));
}

py::list list_shards(Hosted& hosted) {
  py::list out;
  for (const Shard* shard : hosted.shards())
    out.append(py::make_tuple(shard->name, shard->tensor, shard->shape, shard->offset, shard->axes));
  return out;
}

std::vector<Hosted::State> states_of(const std::vector<std::tuple<size_t, std::string, at::Tensor>>& given) {
  std::vector<Hosted::State> out;
  for (const auto& [shard, prefix, tensor] : given) out.push_back({shard, prefix, tensor});
  return out;
}

using States = std::vector<std::tuple<size_t, std::string, at::Tensor>>;

void define_world(py::module_& module) {
  py::class_<World, std::shared_ptr<World>>(module, "World")
      .def(py::init([](double timeout, std::vector<std::string> plugins, const py::object& log) {
             World::Options options{timeout, std::move(plugins), log_to(log)};
             const py::gil_scoped_release no_gil;
             return std::make_shared<World>(options);
           }),
           py::arg("timeout"), py::arg("plugins"), py::arg("log"))
      .def_property_readonly("rank", [](World& self) { return self.rendezvous().rank(); })
      .def_property_readonly("size", [](World& self) { return self.rendezvous().world_size(); })
      .def_property_readonly("local_rank", [](World& self) { return self.rendezvous().local_rank(); })
      .def_property_readonly("local_size", [](World& self) { return self.rendezvous().local_world_size(); })
      .def_property_readonly("launcher", &World::launcher)
      .def_property_readonly("interrupted", &World::interrupted)
      .def("listen", &World::listen)
      .def(
          "barrier", [](World& self, const std::string& key) { self.rendezvous().barrier(key); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "exchange",
          [](World& self, const std::string& key, const std::string& text) {
            return self.rendezvous().exchange(key, text);
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "abandon", [](World& self, const std::string& why) { self.rendezvous().abandon(why); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "leave", [](World& self) { self.rendezvous().leave(); }, py::call_guard<py::gil_scoped_release>());
}

void define_hosted(py::module_& module) {
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<Hosted, std::shared_ptr<Hosted>>(module, "Hosted")
      .def(py::init(&make_hosted))
      .def("shards", &list_shards)
      .def("parameter", &Hosted::parameter)
      .def("strategy", [](Hosted& self) { return self.model().setup.strategy; })
      .def("setup", [](Hosted& self) { return engine::to_json(self.model().setup); })
      .def("warnings", [](Hosted& self) { return self.model().setup.warnings; })
      .def("size", [](Hosted& self, const std::string& axis) { return self.model().mesh.size(axis); })
      .def("rank", [](Hosted& self, const std::string& axis) { return self.model().mesh.rank(axis); })
      .def("checkpoints", &Hosted::checkpoints)
      .def("autocast", [](Hosted& self) { return self.stage().autocast(); })
      .def("precision",
           [](Hosted& self, size_t unit) {
             const UnitPrecision precision = self.stage().unit_precision(unit);
             return std::pair(precision.inputs, precision.outputs);
           })
      .def("begin", &Hosted::begin, NoGil())
      .def("before", &Hosted::before, NoGil())
      .def("after",
           [](Hosted& self, size_t unit, const py::object& result) {
             Tensors outputs;
             collect(result, outputs);
             const py::gil_scoped_release no_gil;
             self.after(unit, outputs);
           })
      .def("end", &Hosted::end, NoGil())
      .def("abandon", &Hosted::abandon, NoGil())
      .def("synchronize", &Hosted::synchronize)
      .def("parameters_changed", &Hosted::parameters_changed, NoGil())
      .def("norm", &Hosted::norm, NoGil())
      .def("hold_whole",
           [](Hosted& self) {
             std::vector<WholeParameter> whole;
             {
               const py::gil_scoped_release no_gil;
               whole = self.hold_whole();
             }
             py::dict out;
             for (const WholeParameter& one : whole) out[py::str(one.name)] = one.tensor;
             return out;
           })
      .def("release_whole", &Hosted::release_whole, NoGil())
      .def("save",
           [](Hosted& self, const std::string& directory, const States& states, const Files& files) {
             const auto given = states_of(states);
             const py::gil_scoped_release no_gil;
             self.save(directory, given, files);
           })
      .def("load", [](Hosted& self, const std::string& directory, const States& states) {
        const auto given = states_of(states);
        const py::gil_scoped_release no_gil;
        self.load(directory, given);
      });
}

}  // namespace

PYBIND11_MODULE(_engine, module) {
  module.attr("version") = HEDDLE_VERSION;
  // Only heddle's own errors: torch translates its own.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      set_error(error);
    }
  });
  module.def("interpreter_ends", &interpreter_ends);
  module.def("write_checkpoint", &write_checkpoint, py::call_guard<py::gil_scoped_release>());
  define_world(module);
  define_hosted(module);
}

}  // namespace heddle::python
