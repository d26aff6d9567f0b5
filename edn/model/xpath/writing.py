"""An expression as text again, every operation in brackets of its own: the text that is evaluated."""

from __future__ import annotations

from edn.model.xpath.expression import Binary, Call, Expression, Negative, Number, Path, Step, String


def write(expression: Expression) -> str:
    """Reading it gives the same tree."""
    match expression:
        case Number(text):
            return text
        case String(text):
            return f"'{text}'" if '"' in text else f'"{text}"'
        case Call(name, arguments):
            return f"{name}({', '.join(map(write, arguments))})"
        case Binary(operator, left, right):
            return f"({write(left)} {operator} {write(right)})"
        case Negative(part):
            return f"(- {write(part)})"
        case Path():
            return _path(expression)


def _path(path: Path) -> str:
    steps = "/".join(map(_step, path.steps))
    if path.start is None:
        return f"/{steps}" if path.absolute else steps
    whole = f"({write(path.start)})" + _predicates(path.predicates)
    return f"{whole}/{steps}" if steps else whole


def _step(step: Step) -> str:
    name = f"e:{step.test}" if step.qualified else step.test
    return f"{step.axis}::{name}{_predicates(step.predicates)}"


def _predicates(predicates: tuple[Expression, ...]) -> str:
    return "".join(f"[{write(one)}]" for one in predicates)
