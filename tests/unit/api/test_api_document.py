"""Answers as pydantic sees them: the schema in the OpenAPI document, and the JSON that is sent."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import TypeAdapter, ValidationError

import edn.api
from edn.api.delivery import DeadLetter, DeadLetterPage
from edn.api.document import document
from edn.api.fields import Always, Sometimes, fill, show
from edn.api.servers import Dispatcher
from edn.api.subscriptions import Sink, Subscription


class Part(msgspec.Struct, frozen=True):
    label: str


class FullPart(Part, frozen=True, kw_only=True):
    size: int


class Example(msgspec.Struct, frozen=True):
    """An answer with every kind of field."""

    id: int
    kind: Annotated[str, Literal["a", "b"]] = "a"
    always: Always[str] = None
    nullable: float | None = None
    sometimes: Sometimes[str] = None
    parts: list[Annotated[Part, FullPart]] = []
    renamed: bool = msgspec.field(name="self", default=False)


WHOLE = Example(1, "b", "x", None, "y", [FullPart("p", size=2)])


def sent(answer: Any) -> Any:
    """The JSON of an answer, as a route sends it that leaves out unset fields."""
    return TypeAdapter(document(type(answer))).validate_python(answer).model_dump(exclude_unset=True)


def test_the_schema_shows_the_type_of_the_document() -> None:
    schema = document(Example).model_json_schema()
    properties = schema["properties"]
    assert schema["description"] == "An answer with every kind of field."
    assert sorted(schema["required"]) == ["always", "id", "kind", "nullable", "parts", "self"]
    assert properties["kind"] == {"enum": ["a", "b"], "title": "Kind", "type": "string"}
    assert properties["always"] == {"title": "Always", "type": "string"}
    assert properties["nullable"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert properties["parts"]["items"] == {"$ref": "#/$defs/FullPart"}
    assert sorted(schema["$defs"]["FullPart"]["required"]) == ["label", "size"]


def test_an_answer_is_sent_without_the_fields_that_have_no_value() -> None:
    assert sent(WHOLE) == {
        "id": 1,
        "kind": "b",
        "always": "x",
        "nullable": None,
        "sometimes": "y",
        "parts": [{"label": "p", "size": 2}],
        "self": False,
    }
    assert "sometimes" not in sent(msgspec.structs.replace(WHOLE, sometimes=None))


@pytest.mark.parametrize(
    ("change", "place"),
    [({"kind": "c"}, "kind"), ({"always": None}, "always"), ({"parts": [Part("p")]}, "parts")],
)
def test_an_answer_that_contradicts_the_document_is_refused(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        sent(msgspec.structs.replace(WHOLE, **change))
    assert refused.value.errors()[0]["loc"][0] == place


def test_a_client_reads_values_and_fields_of_a_newer_network() -> None:
    content = b'{"id": 1, "kind": "new", "parts": [{"label": "p", "size": 2}], "added": {}}'
    read = msgspec.json.decode(content, type=Example)
    assert read == Example(1, "new", parts=[Part("p")])


def test_a_dictionary_may_say_null_where_a_struct_has_nothing_to_say() -> None:
    shown = show(
        Subscription("s", "stocks", sink=Sink("http://sink"), state="active", owner="o", created="now")
    )
    assert "delivery" not in shown
    read = document(Subscription).model_validate({**shown, "delivery": None})
    assert read.model_dump(exclude_unset=True)["delivery"] is None
    assert read.model_dump(exclude_unset=True)["sink"] == {"url": "http://sink", "recipient": None}


def test_names_of_schemas_are_those_of_the_interface() -> None:
    page = document(DeadLetterPage).model_json_schema()
    assert list(page["$defs"]) == ["DeadLetter"]
    assert "body" not in page["$defs"]["DeadLetter"]["properties"]
    assert document(DeadLetter).__name__ == "WholeDeadLetter"
    assert show(Dispatcher("log", asked=True))["self"] is True


def test_an_answer_is_filled_from_attributes_of_the_same_name() -> None:
    @dataclass
    class Row:
        label: str = "from the row"
        size: int = 1

    assert fill(FullPart, Row(), size=3) == FullPart("from the row", size=3)
    with pytest.raises(AttributeError, match="label"):
        fill(Part, object())


def test_models_are_light_to_import() -> None:
    folder = Path(edn.api.__file__).parent
    names = [f"edn.api.{path.stem}" for path in folder.glob("*.py") if path.stem != "document"]
    assert len(names) > 5
    code = f"import sys, {', '.join(names)}; print({{'pydantic', 'fastapi', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
