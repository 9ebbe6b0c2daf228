"""A template that would go on for ever, make endless text or reach out of its sandbox ends with an error, soon."""

import subprocess
import sys
import time

import pytest
from headway_runtime.generation.chat import TemplateError, render
from headway_runtime.prepare.decoder import DecoderFacts

DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = WHAT %}{% endfor %}"
NESTED = "{% set ns = namespace(x=('ab',)) %}{% for i in range(64) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
HOSTILE = {
    "counting": "{% for i in range(10**9) %}{% endfor %}",
    "loops within loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that write": "{% for i in range(99999) %}{% for j in range(999) %}" + "x" * 999 + "{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a float's power": "{{ 9.0 ** 64 ** 64 }}",
    "numbers that grow": DOUBLED.replace("'ab'", "9").replace("WHAT", "ns.x * ns.x"),
    "a text times a number": "{{ 'x' * 10**9 }}",
    "a number times a text": "{{ 10**9 * 'x' }}",
    "a list times a number": "{{ [1] * 10**9 }}",
    "a constant": "{% if 'x' * 10**9 %}{% endif %}",
    "doubled by ~": DOUBLED.replace("WHAT", "ns.x ~ ns.x"),
    "doubled by +": DOUBLED.replace("WHAT", "ns.x + ns.x"),
    "doubled by a list": DOUBLED.replace("WHAT", "[ns.x, ns.x]|join"),
    "doubled by join": DOUBLED.replace("WHAT", "ns.x.join(['', '', ''])"),
    "doubled by replace": DOUBLED.replace("WHAT", "ns.x.replace('b', ns.x)"),
    "doubled by a filter": DOUBLED.replace("WHAT", "ns.x|replace('b', ns.x)"),
    "doubled by a block": DOUBLED.replace(
        "{% set ns.x = WHAT", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y"
    ),
    "doubled by a macro": "{% macro d(n) %}{% if n %}{{ d(n - 1) }}{{ d(n - 1) }}{% else %}x{% endif %}{% endmacro %}"
    "{{ d(60) }}",
    "doubled silently": "{% macro d(n) %}{% if n and d(n - 1) == d(n - 1) %}{% endif %}{% endmacro %}{{ d(60) }}",
    "doubled by a call": "{% macro d(n) %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call d(1) %}" * 40
    + "x"
    + "{% endcall %}" * 40,
    "nested and written": NESTED + "{{ ns.x }}",
    "nested and joined": NESTED + "{{ ns.x|join }}",
    "nested as JSON": NESTED + "{{ ns.x|tojson }}",
    "nested as a text": NESTED + "{{ ns.x|string }}",
    "nested and compared": NESTED + "{% set y = ns.x %}" + NESTED + "{{ ns.x == y }}",
    "nested and sought": NESTED + "{% set y = ns.x %}" + NESTED + "{{ ns.x in [y] }}",
    "nested and tested": NESTED
    + "{% set y = ns.x %}"
    + NESTED
    + "{{ ns.x is eq(y) }}{{ [y]|select('eq', ns.x)|list }}",
    "nested as a key": NESTED + "{{ {ns.x: 1} }}",
    "nested as an index": NESTED + "{{ {}[ns.x] }}",
    "nested in dict()": NESTED + "{{ dict([(ns.x, 1)]) }}",
    "nested and hashed": NESTED + "{{ [ns.x]|unique|list }}",
    "nested and sorted": NESTED + "{{ [ns.x, ns.x]|sort }}",
    "nested in a namespace": NESTED + "{{ ns }}",
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "compared again and again": "{% set a = range(9999)|join %}{% set b = range(9999)|join %}"
    "{% for i in range(99999) %}{% if a == b and a is eq(b) and b in [a] %}{% endif %}{% endfor %}",
    "a format": "{{ '%999999999d' % 1 }}",
    "a format of nothing": "{{ '%999999999s' % none }}",
    "a format of what is missing": "{{ '%999999999s' % missing }}",
    "a format method": "{{ '{:999999999}'.format(1) }}",
    "a format method of a safe text": "{{ ('{:999999999}'|safe).format(1) }}",
    "a format filter": "{{ '%999999999d'|format(1) }}",
    "centred": "{{ 'x'|center(10**9) }}",
    "adjusted": "{{ 'x'.ljust(10**9) }}",
    "filled with zeros": "{{ 'x'.zfill(10**9) }}",
    "tabs": "{{ '\\t'.expandtabs(10**9) }}",
    "indented": "{{ 'x\\n'|indent(10**9) }}",
    "JSON indented": "{{ [1]|tojson(indent=10**9) }}",
    "JSON indented by a text": "{{ [1]|tojson(indent='x' ~ 'y'.join(range(99999)|map('string'))) }}",
    "batches": "{{ [1]|batch(10**9, 1)|list }}",
    "slices": "{{ [1]|slice(10**9)|list }}",
    "rounded": "{{ 1|round(10**9, 'floor') }}",
    "bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "summed lists": "{{ [[1]]|sum(start=[]) }}",
    "filler text": "{{ lipsum(10**6) }}",
    "lists of lists": DOUBLED.replace("'ab'", "[]").replace("64", "99999").replace("WHAT", "ns.x + [i]"),
    "copies of lists": "{% set l = range(99999)|list %}{% for i in range(9999) %}{% set x = l[1:] %}{% endfor %}",
    "copies by a filter": "{% set l = range(99999)|list %}{% for i in range(9999) %}{% set x = l|list %}{% endfor %}",
    "splitting": "{% set t = (range(99999)|join) %}{% for i in range(999) %}{% set x = t.split('1') %}{% endfor %}",
    "searching": "{% set t = (range(99999)|join) %}{% for i in range(99999) %}{% set x = t.find('zz') %}{% endfor %}",
    "sorting": "{% set l = range(9999)|list %}{% for i in range(9999) %}{% set x = l|sort %}{% endfor %}",
    "filters in filters": "{{ range(99999)" + "|select" * 500 + "|list }}",
    "a macro in itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a recursive loop": "{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "including": "{% include 'x' %}",
    "importing": "{% import 'x' as x %}",
    "importing from": "{% from 'x' import y %}",
    "extending": "{% extends 'x' %}",
    "a block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "dunder": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "dunder by index": "{{ ''['__class__']['__mro__'] }}",
    "dunder by attr": "{{ ''|attr('__class__') }}",
    "dunder by map": "{{ ['']|map(attribute='__class__')|first|string + missing }}",
    "globals of a macro": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "globals of a function": "{{ raise_exception.__globals__.x }}",
    "the context": "{{ self._TemplateReference__context.x }}",
    "a loop's inside": "{% for i in [1] %}{{ loop._iterator.x }}{% endfor %}",
    "changing a list": "{{ messages.append(1) }}",
    "changing an object": "{{ messages[0].update(x=1) }}",
    "a number of many digits": "{{ " + "9" * 10_000 + " }}",
    "brackets": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "lists in lists": "{{ " + "[" * 20_000 + "]" * 20_000 + " }}",
    "conditions in conditions": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "nots": "{{ " + "not " * 20_000 + "1 }}",
    "filters in a row": "{{ 1" + "|abs" * 20_000 + " }}",
    "sums": "{{ 1" + "+1" * 40_000 + " }}",
    "a very long one": "x" * 200_000,
    "a long date": "{{ strftime_now('%c' ~ 'x'.join(range(9999)|map('string'))) }}",
}


def why(template: str) -> str:
    """What the error says; empty: there was none."""
    facts = DecoderFacts(context=8, end=(0,), chat_template=template)
    try:
        render(facts, [{"role": "user", "content": "hi"}])
    except TemplateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_soon_and_says_why(name: str) -> None:
    began = time.process_time()
    told = why(HOSTILE[name])
    assert time.process_time() - began < 3
    assert told
    assert "MemoryError" not in told
    assert len(told) <= 400


MEMORY = """
import resource, sys
from tests.unit.test_generation_chat_hostile import HOSTILE, why
why("{{ 1 }}")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, template in HOSTILE.items():
    why(template)
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if now - before > 150 << 10:
        sys.exit(f"{name}: {now - before >> 10} MB")
"""


def test_no_hostile_template_takes_much_memory() -> None:
    ended = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_a_prompt_has_a_longest_length() -> None:
    facts = DecoderFacts(context=8, end=(0,), chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(TemplateError, match="more than 4194304 characters"):
        render(facts, [{"role": "user", "content": "x" * (1 << 20)}] * 5)
