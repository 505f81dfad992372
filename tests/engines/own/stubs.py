"""Names in the place of packages that only GPUs need: they can be imported, and be used as decorators and base classes."""
import importlib.abc
import importlib.machinery
import sys
import types


class Nothing(type):
    """The class of all such names: each attribute is one more, and a call with a function gives the function back."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "driver":
            raise RuntimeError("there is no GPU")
        return Nothing(name, (), {})

    def __call__(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and isinstance(args[0], types.FunctionType) and not kwargs else cls

    def __get_pydantic_core_schema__(cls, *_):
        return {"type": "any"}

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class Stub(types.ModuleType):
    __path__, __version__ = [], "3.6.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def install(*names):
    sys.meta_path.insert(0, Finder(set(names)))
