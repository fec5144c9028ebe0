# SPDX-License-Identifier: GPL-2.0
"""Rules for a cache, written as a sequence of requests.

    rule("no_store", origin(CC + "max-age=60, no-store"), origin())
    rule("max_age", origin(CC + "max-age=60"), hit())

Each step is one request for a path that only this rule uses. origin(): the request must
reach the origin, which answers with those fields; hit(): it must not. A field with a time
is made when it is sent: stamp("Expires", 60). "{path}" in a field is the path. Further
requirements of a step are its arguments, see Step.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Iterator

from origin import ask, date, reply

CC = "Cache-Control: "
_names = itertools.count()


def stamp(name: str, offset: float) -> Callable[..., Any]:
    """A field with the date this many seconds from then."""
    return lambda: f"{name}: {date(offset)}"


class Step:
    """One request.

    answer  None: the origin must not be asked; else what it answers (fields), with
            status and body; raw: these bytes instead
    ask     fields of the request, with method, content, and to: what follows the path
    gets    status that the client must get, text: body, has: lines and lacks: names
            of fields, cache: parameters of Cache-Status, age and ttl (there): the least
            and the most
    sends   lines that the origin must see, unsent: names that it must not
    """

    def __init__(self, answer: Any, ask_fields: Any, method: str = "GET",
                 content: bytes | None = None, to: str = "", status: int = 200,
                 body: bytes | None = None, raw: Any = None, gets: str | None = None,
                 text: str | None = None, has: Any = (), lacks: Any = (), cache: Any = (),
                 age: int | None = None, ttl: int | None = None, sends: Any = (),
                 unsent: Any = ()) -> None:
        self.answer, self.ask, self.method, self.content = answer, ask_fields, method, content
        self.to, self.status, self.body, self.raw = to, status, body, raw
        self.gets, self.text, self.has, self.lacks = gets, text, has, lacks
        self.cache, self.age, self.ttl = cache, age, ttl
        self.sends, self.unsent = sends, unsent

    def reply(self, path: str, nr: int) -> Any:
        if self.raw:
            return self.raw
        body = self.body if self.body is not None else b"%d" % nr
        if self.status in (204, 304) or self.method == "HEAD":
            body = b""
        self.body = body
        fields = [(f() if callable(f) else f).replace("{path}", path) for f in self.answer]
        answer = reply(self.status, body, *fields)
        # a HEAD's length is that of the GET, which it does not know
        return answer.replace(b"Content-Length: 0\r\n", b"") if self.method == "HEAD" else answer


def origin(*fields: str, ask: Any = (),
           **more: Any) -> Step:    # pylint: disable=redefined-outer-name
    return Step(fields, ask, **more)


def hit(*fields: str, **more: Any) -> Step:
    return Step(None, fields, **more)


def fields_wrong(message: Any, has: Iterable[str], lacks: Iterable[str]) -> Iterator[str]:
    for line in has:
        line = line() if callable(line) else line
        name, value = line.split(": ", 1)
        if message.field(name) != value:
            yield f"{name} is {message.field(name)}, wanted {value}"
    for name in lacks:
        if message.field(name) is not None:
            yield f"{name} is there: {message.field(name)}"


def wanted(step: Any, r: Any, stored: Any) -> Iterator[str]:
    """The fault of an answer; stored: the step that brought the stored response."""
    gets = step.gets or (step.status if step.answer is not None else stored.status)
    text = step.text
    if text is None and gets not in (304, 206, 416, 504) and step.method != "HEAD":
        text = step.body if step.answer is not None else stored.body
    if r.status != gets:
        yield f"status {r.status}, wanted {gets}"
    elif text is not None and not step.raw and r.body != text:
        yield f"body {r.body!r}, wanted {text!r}"
    yield from fields_wrong(r, step.has, step.lacks)
    for word in step.cache:
        if word not in r.cache:
            yield f"Cache-Status lacks {word}"
    if step.age and not step.age[0] <= int(r.field("Age") or -1) <= step.age[1]:
        yield f"Age is {r.field('Age')}, wanted {step.age}"
    ttl = [int(word[4:]) for word in r.cache if word.startswith("ttl=")]
    if step.ttl and not (ttl and step.ttl[0] <= ttl[0] <= step.ttl[1]):
        yield f"ttl is {ttl}, wanted {step.ttl}"
    if (step.answer is None) != r.hit and gets != 504:
        yield "Cache-Status says otherwise"


def follow(o: Any, address: tuple, steps: list, connect: Callable[..., Any] = ask) -> list:
    """Run the steps with an origin.Origin; the answers. Raises at the first wrong one."""
    path, answers, stored = f"/r-{next(_names)}", [], steps[0]
    for nr, step in enumerate(steps, 1):
        target = path + step.to
        o.on(target, reply(599, b"nobody should ask") if step.answer is None
             else step.reply(path, nr))
        before = len(o.seen(target))
        fields = [(f() if callable(f) else f).replace("{path}", path) for f in step.ask]
        r = connect(address, step.method, target, *fields, body=step.content)
        requests = o.seen(target)[before:]
        wrong = list(wanted(step, r, stored))
        if len(requests) != (step.answer is not None):
            wrong.append(f"the origin was asked {len(requests)} times")
        for request in requests:
            wrong += [f"at the origin, {x}" for x in fields_wrong(request, step.sends, step.unsent)]
        assert not wrong, f"step {nr}: {'; '.join(wrong)}\n{r}"
        if step.answer is not None and step.method == "GET" and step.status != 304:
            stored = step
        answers.append(r)
    return answers
