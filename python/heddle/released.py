"""Released parameters, whose storage is freed between uses. Reading their values raises an error."""
from __future__ import annotations

from typing import Any, NoReturn

import torch

from .errors import Error

_Tensor: Any = torch.Tensor
_READABLE = {
    getattr(_Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "grad", "is_leaf", "ndim", "is_cuda", "is_cpu",
                 "is_meta", "is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mps", "is_xla", "is_xpu",
                 "is_mkldnn", "is_vulkan", "is_ipu", "is_ort", "is_maia", "is_mtia", "itemsize", "nbytes", "grad_fn",
                 "_backward_hooks", "output_nr", "name", "retains_grad", "_version", "is_hpu", "is_privateuseone")
    if hasattr(_Tensor, name)
} | {getattr(_Tensor, name) for name in (
    "size", "dim", "numel", "nelement", "ndimension", "stride", "element_size", "is_floating_point", "is_complex",
    "get_device", "is_contiguous", "is_signed", "register_hook", "register_post_accumulate_grad_hook", "__hash__",
    "__len__", "__dir__", "has_names")} | {
    torch.numel, torch.is_floating_point, torch.is_complex, torch.is_tensor, torch.get_device}
_NO_GRADIENT = _Tensor.grad.__set__
_TRAINS = {_Tensor.requires_grad_, _Tensor.requires_grad.__set__}


# Ids of parameters and shards whose requires_grad was set; checked before the next training forward of their model.
switched: set[int] = set()


class Released(torch.nn.Parameter):
    """A parameter whose whole values this rank does not have at the moment. ``model.parameters()`` of the model returns
    this rank's shard. Shape, dtype and device can be read; reading values raises `heddle.Error` with the parameter's
    name. The parameter is whole in a forward of its module and within `heddle.unsharded`."""

    _heddle_name: str
    _heddle_unit: str  # as root= names it

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READABLE or func in _TRAINS or (func is _NO_GRADIENT and args[1] is None):
            if func in _TRAINS:
                switched.add(id(args[0]))
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        given = [each for each in _flat(args, kwargs) if isinstance(each, Released)]
        with torch._C.DisableTorchFunctionSubclass():
            # A Python autograd function may read the parameters of its unit, which is whole in its backward.
            if torch._C._current_graph_task_id() != -1 and all(each.untyped_storage().nbytes() > 0 for each in given):
                return func(*args, **(kwargs or {}))
        _refuse(given[0] if given else None, _name(func))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<heddle.Released {self._heddle_name}: {tuple(self.shape)}, {self.dtype}>"

    def __deepcopy__(self, memo: Any) -> NoReturn:
        _refuse(self, "copy.deepcopy")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse(self, "pickle")


class ShardParameter(torch.nn.Parameter):
    """This rank's shard of a parameter, a tensor apart from the module's own parameter. The engine sets its gradient, so
    hooks of autograd on it would never run, and a change of its requires_grad would have no effect."""

    _heddle_name: str

    @property
    def requires_grad(self) -> bool:
        return _Tensor.requires_grad.__get__(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        switched.add(id(self))
        _Tensor.requires_grad.__set__(self, value)

    def requires_grad_(self, requires_grad: bool = True) -> ShardParameter:
        self.requires_grad = requires_grad
        return self

    def register_hook(self, hook: Any) -> NoReturn:
        self._refuse_hook("register_hook")

    def register_post_accumulate_grad_hook(self, hook: Any) -> NoReturn:
        self._refuse_hook("register_post_accumulate_grad_hook")

    def _refuse_hook(self, function: str) -> NoReturn:
        raise Error("usage", self._heddle_name, f"'{function}' on this rank's shard would never run, because the engine "
                    "sets the gradient after the backward", "read or change the gradient after the backward, or register "
                    "a hook on a module")

    def __deepcopy__(self, memo: Any) -> torch.nn.Parameter:
        copied = torch.nn.Parameter(self.data.clone(memory_format=torch.preserve_format), self.requires_grad)
        memo[id(self)] = copied
        return copied


def _name(func: Any) -> str:
    """Returns the name of a function or a property."""
    name = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name in ("__get__", "__set__") else name


def _flat(args: Any, kwargs: Any) -> Any:
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, (list, tuple)):
            yield from _flat(value, None)
        else:
            yield value


def _refuse(parameter: Any, function: str) -> NoReturn:
    name = getattr(parameter, "_heddle_name", "?")
    raise Error("usage", name, f"'{function}' reads values of the parameter '{name}', of which this rank only has a shard",
                "use the shards of model.parameters(), or read it within heddle.unsharded(model)."
                + _forward_hint(getattr(parameter, "_heddle_unit", ""))
                + " Save with heddle.save or heddle.save_pretrained, and run a module through model(...)")


def _forward_hint(unit: str) -> str:
    """Returns what to do if the forward of another module reads a parameter of a unit."""
    if not unit:
        return ""
    return (f" If a forward within the model reads it, pass root=['{unit}'] to heddle.fully_shard, or name the module whose "
            "forward reads it in units=.")
