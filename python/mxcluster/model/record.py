"""Define the base class of typed data, and convert JSON to this data and back.

A class of data states each field once: the annotation gives mypy the type, and the shape checks a
decoded value (see `mxcluster.model.shapes`).

    class Point(Record):
        x: int = field(whole(0, 100))
        label: Optional[str] = field(optional(words), default=None)

    Point(x=1).encode() == {"x": 1}
    Point.decode({"x": 1, "unknown": 2}) == Point(x=1)

mypy sees frozen dataclasses (PEP 681). At run time the base class needs no annotations, because the
shapes hold all types. So the module runs on Python 3.6 without libraries, and on 3.14, which
evaluates annotations late.
"""

from typing import (
    TYPE_CHECKING,
    Callable,
    ClassVar,
    Dict,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    cast,
    overload,
)

from mxcluster.errors import did_you_mean
from mxcluster.model.shapes import SHOWN, Shape, Wrong, words

T = TypeVar("T")
R = TypeVar("R", bound="Record")
_REQUIRED = object()  # the default of a field that each value must have

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        """Return a decorator that changes nothing."""
        return lambda item: item


class Field:
    """One field of a Record: its name, shape and default."""

    __slots__ = ("default", "factory", "former", "key", "name", "shape")

    def __init__(
        self,
        shape: Shape[object],
        default: object,
        factory: Optional[Callable[[], object]],
        key: str,
        former: Tuple[str, ...],
    ) -> None:
        self.name = ""  # set by the Record's class
        self.shape, self.default, self.factory = shape, default, factory
        self.key, self.former = key, former

    @property
    def is_required(self) -> bool:
        """True if a new record needs a value of the field."""
        return self.factory is None and self.default is _REQUIRED

    def value_of_new(self) -> object:
        """Return the value of a new record that leaves the field out."""
        return self.factory() if self.factory else _copy(self.default)


@overload
def field(shape: Shape[T], *, key: str = ..., former: Tuple[str, ...] = ...) -> T: ...


@overload
def field(shape: Shape[T], *, default: T, key: str = ..., former: Tuple[str, ...] = ...) -> T: ...


@overload
def field(
    shape: Shape[T], *, factory: Callable[[], T], key: str = ..., former: Tuple[str, ...] = ...
) -> T: ...


def field(
    shape: Shape[T],
    *,
    default: object = _REQUIRED,
    factory: Optional[Callable[[], T]] = None,
    key: str = "",
    former: Tuple[str, ...] = (),
) -> T:
    """Return the definition of a field of a Record.

    A string below the field describes its meaning and unit, where the name does not tell them.

    Args:
        shape: the check of a decoded value.
        default: the value of a record without the field. A field without a default is required. A
            field that a later version adds has a default, so that earlier data stays readable.
        factory: a function that returns the value of a new record without the field, such as the
            present time. Decoded data must have the field.
        key: the name in JSON, if this name differs from the attribute.
        former: the names in JSON of earlier versions.
    """
    return cast(T, Field(shape, default, factory, key, former))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Record:
    """Base of a class of typed data with a JSON form. A record never changes.

    Class arguments:
        nulls: True to write null for a field without a value, which `encode` otherwise leaves out.
        strict: True for data that people write. An unknown name is then an error that proposes the
            nearest name. In other data, decode drops unknown names, because a later version may
            have added these names.
        kind_key: the name in JSON that tells the subclass. The class then stands for the union of
            its subclasses: its `decode` returns a record of the subclass that the JSON names.
        kind: the value at `kind_key` for this subclass.
        other: True for the subclass of all kinds without a subclass of their own. Without such a
            subclass, decode refuses these kinds.
    """

    FIELDS: ClassVar[Dict[str, Field]] = {}
    NULLS: ClassVar[bool] = False
    STRICT: ClassVar[bool] = False
    KIND_KEY: ClassVar[str] = ""
    KIND: ClassVar[str] = ""
    OTHER: ClassVar[bool] = False
    KINDS: ClassVar[Dict[str, Type["Record"]]] = {}

    def __init_subclass__(
        cls,
        strict: Optional[bool] = None,
        nulls: Optional[bool] = None,
        kind_key: str = "",
        kind: str = "",
        other: bool = False,
    ) -> None:
        super(Record, cls).__init_subclass__()
        own = {name: item for name, item in vars(cls).items() if isinstance(item, Field)}
        for name, item in own.items():
            item.name, item.key = name, item.key or name
            delattr(cls, name)
        cls.FIELDS = {}
        for base in cls.__bases__:
            cls.FIELDS.update(getattr(base, "FIELDS", {}))
        cls.FIELDS.update(own)
        cls.STRICT = cls.STRICT if strict is None else strict
        cls.NULLS = cls.NULLS if nulls is None else nulls
        cls.KIND, cls.OTHER = kind, other
        if kind_key:
            cls.KIND_KEY, cls.KINDS = kind_key, {}
        if kind or other:
            cls.KINDS[kind] = cls

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            unknown = sorted(set(values) - set(self.FIELDS))
            lacking = [name for name in self.FIELDS if name not in values]
            lacking = [name for name in lacking if self.FIELDS[name].is_required]
            if unknown or lacking:
                raise TypeError(
                    "%s: unknown fields %s, missing fields %s"
                    % (type(self).__name__, unknown, lacking)
                )
            self.__dict__.update(
                (name, values[name] if name in values else item.value_of_new())
                for name, item in self.FIELDS.items()
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a record never changes: use `replaced` for a copy")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # a field may hold a list or dict

    def __repr__(self) -> str:
        values = ("%s=%r" % item for item in self.__dict__.items())
        return "%s(%s)" % (type(self).__name__, ", ".join(values))

    def replaced(self: R, **values: object) -> R:
        """Return a copy with other values for some fields. Raises TypeError for unknown names."""
        return type(self)(**dict(self.__dict__, **values))

    def encode(self) -> Dict[str, object]:
        """Return the record as JSON. Without NULLS, leave out fields that are None by default."""
        found: Dict[str, object] = {self.KIND_KEY: self.KIND} if self.KIND else {}
        for name, item in self.FIELDS.items():
            value = self.__dict__[name]
            if value is not None or self.NULLS or item.default is not None:
                found[item.key] = encode(value)
        return found

    @classmethod
    def decode(cls: Type[R], value: object) -> R:
        """Return the record of JSON `value`.

        Raises Wrong with the place of a value that does not match its shape, of a missing field, of
        fields that contradict each other, and, in a strict class, of an unknown name.
        """
        if not isinstance(value, dict):
            raise Wrong("an object", value)
        if cls.KIND_KEY and not cls.KIND and not cls.OTHER:
            return cls._of_kind(value)
        found = cls.__new__(cls)
        content, lacking = found.__dict__, []
        for name, item in cls.FIELDS.items():
            key = item.key
            if key not in value and item.former:
                key = next((former for former in item.former if former in value), key)
            if key in value:
                try:
                    content[name] = item.shape(value[key])
                except Wrong as wrong:
                    raise wrong.inside("." + key) from None
            elif item.default is _REQUIRED:
                lacking.append(key)
            else:
                content[name] = _copy(item.default)
        if cls.STRICT:  # before the missing fields: an unknown name may be one of these, misspelt
            cls._refuse_unknown(value)
        if lacking:
            raise Wrong("an object with %s" % ", ".join(lacking), sorted(map(str, value)))
        try:
            found.refuse_contradictions()
        except Wrong as wrong:
            raise wrong.inside("") from None  # without the dot before the first name
        return found

    def refuse_contradictions(self) -> None:
        """Raise Wrong, with a place such as ".name", if valid fields contradict each other."""

    @classmethod
    def _of_kind(cls: Type[R], value: Mapping[str, object]) -> R:
        kind = value.get(cls.KIND_KEY)
        chosen = cls.KINDS.get(kind if isinstance(kind, str) else "", cls.KINDS.get(""))
        if chosen is None:
            raise Wrong("one of %s" % ", ".join(cls.KINDS), kind).inside("." + cls.KIND_KEY)
        return cast(R, chosen.decode(value))

    @classmethod
    def _refuse_unknown(cls, value: Mapping[str, object]) -> None:
        known = [key for item in cls.FIELDS.values() for key in (item.key,) + item.former]
        for name in value:
            if name not in known and name != cls.KIND_KEY:
                close = did_you_mean(name, known)
                raise Wrong("a known name%s" % close, name).inside("." + words(str(name))[:SHOWN])


def _copy(default: object) -> object:
    """Return a default for one record: a copy of a list or dict."""
    if isinstance(default, list):
        return list(default)
    return dict(default) if isinstance(default, dict) else default


def encode(value: object) -> object:
    """Return `value`, which consists of records, lists, tuples, dicts and JSON, as JSON."""
    if isinstance(value, Record):
        return value.encode()
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {name: encode(item) for name, item in value.items()}
    return value


def record(cls: Type[R]) -> Shape[R]:
    """Return the shape of a record of the class `cls`."""
    return cls.decode
