"""What a template may use: what those of published models do, and nothing else."""

STR = frozenset(
    {
        *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal"),
        *("isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition"),
        *("removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"),
        *("splitlines", "startswith", "strip", "swapcase", "title", "upper"),
    }
)
LIST = frozenset({"count", "index"})
DICT = frozenset({"copy", "get", "items", "keys", "values"})
LOOP = frozenset(
    {
        *("changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"),
        *("revindex", "revindex0"),
    }
)
FILTERS = frozenset(
    {
        *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "indent", "int"),
        *("items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace"),
        *("reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "tojson", "trim"),
        *("truncate", "unique", "upper"),
    }
)
SHALLOW = frozenset(
    {
        *("count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
        *("reverse", "select", "selectattr"),
    }
)
"""Filters that look at no element, or leave that to another filter or test for each."""
COMPARING = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})
"""Filters that look at each element many times."""
READING = frozenset(
    {
        *("!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le", "lessthan"),
        *("lower", "lt", "ne", "upper"),
    }
)
"""Tests that read all of a value."""
